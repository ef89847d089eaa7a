"""The work of a task that runs before the next record: due timers, retries and queued work items.

The watermark advances when all earlier work is finished; until then, the new watermark is pending. After a restart
event time does not advance until the unfinished records of the last commit, and the timers that were due, have been
started again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from tidegate.engine.keyed_state.timers import DOMAINS, TimerCells, TimerQueue
from tidegate.engine.processing.input import Input
from tidegate.engine.processing.key_order import KeyOrder
from tidegate.engine.processing.work_item import WorkItem
from tidegate.functions.context import TimeDomain, Timer
from tidegate.state.layout import EVENT, PROCESSING
from tidegate.state.overlay import ABSENT, Entry
from tidegate.time.clock import MAX_TIME
from tidegate.time.combined_watermark import CombinedWatermark, OutsideChannel

__all__ = ("RunQueue",)

_DOMAIN_NAMES: Final[dict[int, TimeDomain]] = {number: name for name, number in DOMAINS.items()}


class RunQueue:
    def __init__(
        self, order: KeyOrder, time: CombinedWatermark, queues: Mapping[int, TimerQueue], timers: TimerCells, now: int
    ) -> None:
        self._order, self._time, self._queues, self._timers, self._now = order, time, queues, timers, now
        self._pending_watermarks: deque[tuple[int, int]] = deque()
        self._resuming: set[Input | None] = set()
        self.has_work = True
        """There may be work that runs before the next record. The hot loop checks it after each record."""
        self.event_due = queues[EVENT].due
        """No event-time timer is due before this time. The hot loop reads it."""

    @property
    def output_watermark(self) -> int:
        """The watermark for tasks downstream: that of the task, unless timers that it fires are unfinished."""
        timers = (work.timer for work in self._order.unfinished.values() if work.timer is not None)
        firing = min((timer.at for timer in timers if timer.time == "event"), default=MAX_TIME + 1)
        return min(self._time.watermark, self._queues[EVENT].due - 1, firing - 1)

    @property
    def processing_due(self) -> int:
        """No processing-time timer is due before this time."""
        return self._queues[PROCESSING].due

    # -- time --------------------------------------------------------------------------------------------------------
    def tick(self, now: int, monotonic: float) -> None:
        """The clock has moved."""
        self._now = now
        self._order.tick(monotonic)
        if self._order.runnable or self._queues[PROCESSING].due <= now:
            self.has_work = True

    def resume(self, inputs: Iterable[Input]) -> None:
        """After a restart: event time does not advance until these inputs' unfinished records, and the timers that are
        due at the last commit's watermark, have been started again. They precede the effects of new watermarks."""
        self._resuming = {None, *inputs}

    def caught_up(self, input_: Input | None) -> None:
        """This input is at the position of the last commit again; None: the timers have fired again."""
        if input_ in self._resuming:
            self._resuming.discard(input_)
            if not self._resuming:
                self.time_moved()

    def time_moved(self) -> None:
        """A channel's watermark has changed. It takes effect once all earlier work is finished."""
        if self._resuming:
            return
        lowest = self._time.lowest()
        newest = self._order.sequence
        if not self._order.unfinished:
            self._apply(lowest)
        elif self._pending_watermarks and self._pending_watermarks[-1][0] == newest:
            self._pending_watermarks[-1] = (newest, max(lowest, self._pending_watermarks[-1][1]))
        else:
            self._pending_watermarks.append((newest, lowest))

    def finished(self) -> None:
        """A work item is finished: queued work of its key can run, and a pending watermark may take effect."""
        if self._order.runnable:
            self.has_work = True
        oldest = self._order.oldest
        while self._pending_watermarks and (oldest is None or self._pending_watermarks[0][0] < oldest):
            self._apply(self._pending_watermarks.popleft()[1])

    def advance(self, channel: OutsideChannel) -> Callable[[int], None]:
        """A function that raises the watermark of this channel. A closure, since the hot loop calls it. If this is the
        only channel and no work is unfinished, the task's watermark advances at once."""
        time, unfinished, alone = self._time, self._order.unfinished, self._time.single is channel

        def advance(watermark: int) -> None:
            channel.watermark = watermark
            if not alone or unfinished:
                self.time_moved()
                return
            time.watermark = watermark
            if watermark >= self.event_due:
                self.has_work = True

        return advance

    def _apply(self, watermark: int) -> None:
        if watermark > self._time.watermark:
            self._time.watermark = watermark
            if watermark >= self.event_due:
                self.has_work = True

    # -- timers ------------------------------------------------------------------------------------------------------
    def queue(self, timers: list[Entry]) -> None:
        """Queue the timers that a finished handler has set."""
        for entry in timers:
            if entry.value is not ABSENT:
                domain, at = entry.value
                self._queues[domain].push((at, entry.key, entry.sub.decode()))
                if domain == EVENT:
                    self.event_due = min(self.event_due, at)
                if at <= (self._time.current if domain == EVENT else self._now):
                    self.has_work = True
        timers.clear()

    def next(self) -> WorkItem | None:
        """The next work item to run before the next record. None: there is none."""
        if self._order.runnable:
            return self._order.runnable.popleft()
        for domain, upto in ((EVENT, self._time.watermark), (PROCESSING, self._now)):
            queue = self._queues[domain]
            while (due := queue.pop(upto)) is not None:
                work = self._timer_work(domain, *due)
                if work is not None:
                    return work
        self.event_due = self._queues[EVENT].due
        self.has_work = False
        self.caught_up(None)
        return self.next() if self.has_work else None

    def is_set(self, timer: Timer, key: bytes) -> bool:
        """Whether the timer is still set: neither cancelled, nor moved, nor fired."""
        entry = self._timers.entry(key, timer.name.encode())
        return entry.value is not ABSENT and entry.value == (DOMAINS[timer.time], timer.at)

    def _timer_work(self, domain: int, at: int, key: bytes, name: str) -> WorkItem | None:
        """The work item of a due timer. None: the timer is stale, or is queued behind its busy key."""
        timer = Timer(name=name, at=at, time=_DOMAIN_NAMES[domain])
        if not self.is_set(timer, key):
            return None
        work = WorkItem(key, at, False, timer=timer)
        waiting = self._order.busy.get(key)
        if waiting is None:
            return work
        if not any(other.timer == timer for other in waiting):
            self._order.queue(work)
        return None
