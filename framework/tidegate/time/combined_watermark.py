"""The watermark of a task: the minimum over its channels.

A channel is an input partition that is written from outside or, between services of one app, a sending task. Senders
publish their watermarks in *progress records*, with the position in each output partition up to which the watermark is
valid. It counts once the task has processed all records up to these positions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import length_hint
from typing import Any

from tidegate.logs.base import TopicPartition
from tidegate.time.clock import MAX_TIME, MIN_TIME
from tidegate.time.watermarks import WatermarkGenerator

__all__ = ("CombinedWatermark", "OutsideChannel", "Progress", "SenderChannel")


@dataclass(frozen=True, kw_only=True)
class Progress:
    """The progress of a sending task, for its downstream tasks."""

    sender: str
    watermark: int
    idle: bool
    sent: Mapping[TopicPartition, int]
    """By output partition, the position up to which the watermark is valid."""


@dataclass(kw_only=True)
class OutsideChannel:
    """An input partition that is written from outside."""

    bound: int | None
    generator: WatermarkGenerator
    idle_ms: int | None
    watermark: int = MIN_TIME
    idle: bool = False
    active_at: float | None = None
    """The monotonic time of the last record; None: not checked yet."""

    def silent(self, monotonic: float) -> bool:
        """No record arrived for the idle timeout."""
        if self.active_at is None:
            self.active_at = monotonic
        return self.idle_ms is not None and 1000 * (monotonic - self.active_at) >= self.idle_ms


@dataclass(kw_only=True)
class SenderChannel:
    """An upstream task of this app."""

    sender: str
    watermark: int = MIN_TIME
    idle: bool = False
    waiting: deque[Progress] = field(default_factory=deque)

    def apply(self, reached: Callable[[TopicPartition], int | None]) -> bool:
        """Apply the progress whose records are all processed. True: the channel has changed."""
        changed = False
        while self.waiting:
            head = self.waiting[0]
            if any((at := reached(source)) is not None and at < upto for source, upto in head.sent.items()):
                break
            self.waiting.popleft()
            changed = changed or head.watermark > self.watermark or head.idle != self.idle
            self.watermark, self.idle = max(self.watermark, head.watermark), head.idle
        return changed


class CombinedWatermark:
    """The watermark of a task, and whether it is idle."""

    def __init__(self, outside: Mapping[TopicPartition, OutsideChannel], senders: Mapping[str, SenderChannel]) -> None:
        self.outside, self.senders = outside, senders
        self.watermark = MIN_TIME
        self.end = MIN_TIME
        """The watermark of a task without channels: MAX_TIME at the end of a bounded run."""
        self._channels: list[OutsideChannel | SenderChannel] = [*outside.values(), *senders.values()]
        self._passing: Sequence[int] = ()
        self._counted = 0
        """How many of the followed records the watermark includes."""

    # -- following the only channel ----------------------------------------------------------------------------------
    def follow(self, channel: OutsideChannel, timestamps: Sequence[int], rest: Iterator[Any], bound: int) -> int:
        """Follow records of the only channel while the iterator `rest` is consumed. Until `halt`, the watermark is
        computed from them only when it is read: updating it per record would cost a twentieth of the throughput.
        Returns the watermark after all of them; if a timer is due before, the caller must `halt`."""
        self._channel, self._passing, self._rest, self._bound = channel, timestamps, rest, bound
        self._counted, self._top = 0, max(timestamps) - bound
        return self._top

    def halt(self, *, done: bool = False) -> None:
        """Stop following: from here on the watermark is updated explicitly. `done`: the last record is processed."""
        if self._passing:
            self._count(len(self._passing) - length_hint(self._rest) - (not done))
            self._passing = ()

    @property
    def current(self) -> int:
        """The watermark that the current record sees."""
        if self._passing:
            self._count(len(self._passing) - length_hint(self._rest) - 1)
        return self.watermark

    def _count(self, upto: int) -> None:
        if upto <= self._counted:
            return
        passed = self._passing[self._counted : upto]
        mark = self._top if len(passed) == len(self._passing) else max(passed) - self._bound
        self._counted = upto
        if mark > self._channel.watermark:
            self._channel.watermark = self.watermark = mark

    # -- channels ----------------------------------------------------------------------------------------------------
    @property
    def idle(self) -> bool:
        return bool(self._channels) and all(channel.idle for channel in self._channels)

    @property
    def age(self) -> int:
        """The event time for time to live: the end of a bounded run does not expire state."""
        watermark = self.current
        return watermark if watermark < MAX_TIME else MIN_TIME

    @property
    def timeless(self) -> bool:
        """The task has no channels: it reads only feedback edges."""
        return not self._channels

    @property
    def single(self) -> OutsideChannel | None:
        """The only channel, if it is an outside channel: the hot loop then needs no minimum."""
        return next(iter(self.outside.values())) if len(self._channels) == 1 and self.outside else None

    def lowest(self) -> int:
        """The watermark that the channels allow: the minimum over the channels that are not idle.

        If all are idle, it is the maximum: otherwise the last watermark of a sender that becomes idle at the same time
        would have no effect, and the result would depend on the order in which channels become idle."""
        if not self._channels:
            return self.end
        active = [channel.watermark for channel in self._channels if not channel.idle]
        return min(active) if active else max(channel.watermark for channel in self._channels)

    def advance(self, source: TopicPartition, watermark: int) -> None:
        """Raise the watermark of a partition."""
        channel = self.outside[source]
        channel.watermark, channel.idle = max(channel.watermark, watermark), False

    def finish(self, source: TopicPartition) -> None:
        """The partition has ended."""
        self.advance(source, MAX_TIME)
