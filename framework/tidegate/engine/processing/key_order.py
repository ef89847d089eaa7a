"""The order of keys: which are busy, what waits behind them, what is not finished.

Work counts as unfinished from the moment it cannot pass straight through: its handler waits, or waits to be repeated,
or another record of its key does. Until it is finished its key is busy, and whatever comes for that key queues up
behind.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush

from tidegate.engine.processing.work_item import WorkItem

__all__ = ("KeyOrder",)


class KeyOrder:
    def __init__(self) -> None:
        self.busy: dict[bytes, deque[WorkItem]] = {}
        """Per busy key, what waits behind. Always the same dict."""
        self.unfinished: dict[int, WorkItem] = {}
        """By sequence number, so the first is the oldest. Always the same dict."""
        self.runnable: deque[WorkItem] = deque()
        """Unfinished work whose turn has come."""
        self.sequence = 0
        """The number of the work that was enlisted last."""
        self._retries: list[tuple[float, int, WorkItem]] = []

    def enlist(self, work: WorkItem) -> None:
        """From now on the work counts as unfinished, and its key as busy."""
        if work.sequence:
            return
        self.sequence += 1
        work.sequence = self.sequence
        self.unfinished[work.sequence] = work
        self.busy.setdefault(work.key, deque())
        if work.input is not None and work.record is not None:
            work.input.unfinished[work.record.offset] = None

    def queue(self, work: WorkItem) -> None:
        """Its key is busy: wait behind."""
        self.enlist(work)
        self.busy[work.key].append(work)

    def finish(self, work: WorkItem) -> None:
        """The next one of its key may go on."""
        del self.unfinished[work.sequence]
        if work.input is not None and work.record is not None:
            work.input.unfinished.pop(work.record.offset, None)
        behind = self.busy[work.key]
        if behind:
            self.runnable.append(behind.popleft())
        else:
            del self.busy[work.key]

    def retry(self, work: WorkItem, due: float) -> None:
        """Its turn comes again at `due`, by the monotonic clock."""
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
        """The sequence number of the oldest work that is not finished."""
        return next(iter(self.unfinished), None)
