"""Assigns timestamps and watermarks: from a record of one input partition to its time, and to its channel's watermark.

A record gets its timestamp from the topic's source of time. If the partition is written from outside, the record also
moves the watermark of the partition's channel, by the topic's strategy:

- With a *bound*, the watermark is the highest timestamp less that bound.
- Else a generator of the strategy is asked for each record, before its handler runs (it may fail, as may the source of
  time: the record is then unreadable). The channel moves after the handler.

Where a partition is the only channel of its task, has a bound, and its records carry their time, the watermark is
*followed* instead of assigned: `CombinedWatermark.follow` derives it from the timestamps when it is read.
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
        """`channel`: None if another task of this run writes the partition, and says how far its time has come."""
        self.channel, self._clock, self._combined = channel, clock, combined
        self.extract = source.extractor(clock, outside=channel is not None)
        """From a value to its timestamp; None: the record's own is its time."""
        bound = None if channel is None else channel.bound
        self.lead = None if bound is None else bound + 1
        """How far the watermark stays behind the highest timestamp; None: it is not known by a bound."""
        self.generator = None if channel is None or bound is not None else channel.generator
        self._may_follow = channel is not None and combined.single is channel and bound is not None
        self._may_follow = self._may_follow and self.extract is None

    def received(self) -> None:
        """Records have come: the channel is not idle."""
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
        """A record is handled, or set aside. Whether it moves its channel: the task's watermark may move, too."""
        if self.channel is None or watermark <= self.channel.watermark:
            return False
        self.channel.watermark = watermark
        return True

    def follow(self, timestamps: Sequence[int], rest: Iterator[Any]) -> int | None:
        """Follow the records of which `rest` are not taken up. Returns what they will move the watermark to; None:
        each of them must be assigned."""
        if not self._may_follow or self.channel is None or self.lead is None:
            return None
        return self._combined.follow(self.channel, timestamps, rest, self.lead)
