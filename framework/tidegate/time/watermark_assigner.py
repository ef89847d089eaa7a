"""Assigns timestamps and watermarks to the records of one input partition.

The timestamp comes from the topic's time source. If the partition is written from outside, the record also advances the
watermark of the partition's channel, by the topic's strategy:

- With a *bound*, the watermark is the highest timestamp minus the bound.
- Without, the strategy's generator is called for each record, before its handler runs (if it or the time source fails,
  the record counts as unreadable). The channel advances after the handler.

If a partition is the only channel of its task, has a bound, and its records carry their timestamps, the watermark is
*followed* instead: `CombinedWatermark.follow` computes it from the timestamps when it is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tidegate.time.clock import MIN_TIME, Clock
from tidegate.time.combined_watermark import CombinedWatermark, OutsideChannel
from tidegate.time.sources import TimeSource

__all__ = ("WatermarkAssigner",)


class WatermarkAssigner:
    """For one input partition of a task."""

    def __init__(
        self, source: TimeSource, channel: OutsideChannel | None, clock: Clock, combined: CombinedWatermark
    ) -> None:
        """`channel`: None if tasks of this run write the partition and publish their watermarks."""
        self.channel, self._clock, self._combined = channel, clock, combined
        self.extract = source.extractor(clock, outside=channel is not None)
        """From a value to its timestamp; None: the record's own timestamp is used."""
        bound = None if channel is None else channel.bound
        self.lead = None if bound is None else bound + 1
        """The distance from the highest timestamp to the watermark; None: the strategy has no bound."""
        self.generator = None if channel is None or bound is not None else channel.generator
        self._may_follow = channel is not None and combined.single is channel and bound is not None
        self._may_follow = self._may_follow and self.extract is None

    def received(self) -> None:
        """Records have arrived: the channel is not idle."""
        if self.channel is not None:
            self.channel.active_at, self.channel.idle = self._clock.monotonic(), False

    def timestamp(self, value: Any, stamped: int) -> int:
        """`stamped`: the timestamp that the record carries."""
        return stamped if self.extract is None else self.extract(value, stamped)

    def watermark(self, timestamp: int, value: Any) -> int:
        """The watermark that the channel has after this record, unless it is higher already."""
        if self.lead is not None:
            return timestamp - self.lead
        return MIN_TIME if self.generator is None else int(self.generator.observe(timestamp, value))

    def raises(self, watermark: int) -> bool:
        """Advance the channel after a record was processed or skipped. True: it has advanced, so the task's watermark
        may advance, too."""
        if self.channel is None or watermark <= self.channel.watermark:
            return False
        self.channel.watermark = watermark
        return True

    def follow(self, timestamps: Sequence[int], rest: Iterator[Any]) -> int | None:
        """Follow records; `rest` iterates over those that are not processed yet. Returns the watermark after all of
        them; None: each must be assigned."""
        if not self._may_follow or self.channel is None or self.lead is None:
            return None
        return self._combined.follow(self.channel, timestamps, rest, self.lead)
