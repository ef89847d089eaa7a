"""A task's own time: the minimum over its channels.

A channel is an input partition that is written from outside, or, between services of one app, a sending task. What
senders know reaches a task through their *progress records*: a watermark, and how far in each partition it speaks for.
It counts once the task has handled everything up to there.
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
    """What a task tells those downstream."""

    sender: str
    watermark: int
    idle: bool
    sent: Mapping[TopicPartition, int]
    """Per output partition, the position after the last record that this watermark speaks for."""


@dataclass(kw_only=True)
class OutsideChannel:
    """An input partition that others write."""

    bound: int | None
    generator: WatermarkGenerator
    idle_ms: int | None
    watermark: int = MIN_TIME
    idle: bool = False
    active_at: float | None = None
    """When the last record came, in seconds that no clock's being set changes; None: not looked at yet."""

    def silent(self, monotonic: float) -> bool:
        """Nothing came for the idle time."""
        if self.active_at is None:
            self.active_at = monotonic
        return self.idle_ms is not None and 1000 * (monotonic - self.active_at) >= self.idle_ms


@dataclass(kw_only=True)
class SenderChannel:
    """A task of this app whose output this task reads."""

    sender: str
    watermark: int = MIN_TIME
    idle: bool = False
    waiting: deque[Progress] = field(default_factory=deque)

    def apply(self, reached: Callable[[TopicPartition], int | None]) -> bool:
        """Take in the progress whose records are all handled. True: something changed."""
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
        """What a task without channels goes by: MAX_TIME when a bounded run is over."""
        self._channels: list[OutsideChannel | SenderChannel] = [*outside.values(), *senders.values()]
        self._passing: Sequence[int] = ()
        self._counted = 0
        """How many of those that pass are in the watermark."""

    # -- records that pass straight through --------------------------------------------------------------------------
    def follow(self, channel: OutsideChannel, timestamps: Sequence[int], rest: Iterator[Any], bound: int) -> int:
        """Records of the only channel are about to pass, as `rest` is used up. Until `halt` they move the watermark
        only if somebody looks at it: to move it with each of them would take a twentieth of the throughput. Returns
        what they will move it to; if a timer must fire before, `halt`."""
        self._channel, self._passing, self._rest, self._bound = channel, timestamps, rest, bound
        self._counted, self._top = 0, max(timestamps) - bound
        return self._top

    def halt(self, *, done: bool = False) -> None:
        """From here on the watermark is moved by others. `done`: the record that passed last is handled."""
        if self._passing:
            self._count(len(self._passing) - length_hint(self._rest) - (not done))
            self._passing = ()

    @property
    def current(self) -> int:
        """The watermark as the record that is being handled finds it."""
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

    # -- what it goes by ---------------------------------------------------------------------------------------------
    @property
    def idle(self) -> bool:
        return bool(self._channels) and all(channel.idle for channel in self._channels)

    @property
    def age(self) -> int:
        """Event time as far as state grows old by it: the end of a bounded run is no time."""
        watermark = self.current
        return watermark if watermark < MAX_TIME else MIN_TIME

    @property
    def timeless(self) -> bool:
        """It has no channels: its input is only what comes back to it."""
        return not self._channels

    @property
    def single(self) -> OutsideChannel | None:
        """The only channel, if it is an outside one: the hot loop then needs no minimum."""
        return next(iter(self.outside.values())) if len(self._channels) == 1 and self.outside else None

    def lowest(self) -> int:
        """What the watermark may be raised to: the minimum over the channels that are not idle.

        If all are idle, none holds the others back, and the highest counts: else a sender that tells its last watermark
        and its idleness at once would be heard by nobody, and time would depend on who fell silent first."""
        if not self._channels:
            return self.end
        active = [channel.watermark for channel in self._channels if not channel.idle]
        return min(active) if active else max(channel.watermark for channel in self._channels)

    def advance(self, source: TopicPartition, watermark: int) -> None:
        """Nothing up to this time will come any more from this partition."""
        channel = self.outside[source]
        channel.watermark, channel.idle = max(channel.watermark, watermark), False

    def finish(self, source: TopicPartition) -> None:
        """Nothing more will come from this partition."""
        self.advance(source, MAX_TIME)
