"""The order per key: busy keys, the work that is queued behind them, and unfinished work.

Work counts as unfinished when its handler suspends or is to be retried, or when other work of its key is unfinished.
Until it is finished its key is busy, and later work of that key is queued.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush

from tidegate.engine.processing.work_item import WorkItem

__all__ = ("KeyOrder",)


class KeyOrder:
    def __init__(self) -> None:
        self.busy: dict[bytes, deque[WorkItem]] = {}
        """Per busy key, its queued work. Always the same dict object."""
        self.unfinished: dict[int, WorkItem] = {}
        """By sequence number, so the first is the oldest. Always the same dict object."""
        self.runnable: deque[WorkItem] = deque()
        """Unfinished work that can run now."""
        self.sequence = 0
        """The number of the work item that was enlisted last."""
        self._retries: list[tuple[float, int, WorkItem]] = []

    def enlist(self, work: WorkItem) -> None:
        """Mark the work as unfinished, and its key as busy."""
        if work.sequence:
            return
        self.sequence += 1
        work.sequence = self.sequence
        self.unfinished[work.sequence] = work
        self.busy.setdefault(work.key, deque())
        if work.input is not None and work.record is not None:
            work.input.unfinished[work.record.offset] = None

    def queue(self, work: WorkItem) -> None:
        """Queue the work behind its busy key."""
        self.enlist(work)
        self.busy[work.key].append(work)

    def finish(self, work: WorkItem) -> None:
        """Finish the work: the next one of its key can run, or the key is free."""
        del self.unfinished[work.sequence]
        if work.input is not None and work.record is not None:
            work.input.unfinished.pop(work.record.offset, None)
        behind = self.busy[work.key]
        if behind:
            self.runnable.append(behind.popleft())
        else:
            del self.busy[work.key]

    def retry(self, work: WorkItem, due: float) -> None:
        """Run the work again at `due`, by the monotonic clock."""
        self.enlist(work)
        heappush(self._retries, (due, work.sequence, work))

    def tick(self, monotonic: float) -> None:
        while self._retries and self._retries[0][0] <= monotonic:
            self.runnable.append(heappop(self._retries)[2])

    @property
    def next_retry(self) -> float | None:
        return self._retries[0][0] if self._retries else None

    @property
    def oldest(self) -> int | None:
        """The sequence number of the oldest unfinished work."""
        return next(iter(self.unfinished), None)
