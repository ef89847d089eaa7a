"""Epoch alignment: how a task moves from epoch to epoch, and takes a snapshot of the commit that moved it.

1. A barrier asks the task to enter an epoch (`move_to`), or its next record was sent in a later epoch
   (`split_by_epoch`, `must_move_for`). Its next commit is then due at once.
2. The marker of that commit names the new epoch (`next`). At the freeze the task enters it (`enter`): records handled
   from then on, and their outputs, belong to the new epoch.
3. When the commit is applied, the store holds exactly its state: a snapshot of the store is taken, and written
   concurrently with the task (`take_snapshot`).

After a barrier that stops the app, the task starts no more work. It enters the last epoch when its handlers have ended,
or when the drain time is over, and commits nothing after that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Mapping, Sequence

from tidegate.engine.commit.epoch_scan import EpochScan
from tidegate.engine.formats.barrier import OPENED, Opened
from tidegate.engine.formats.commit_marker import CommitMarker
from tidegate.engine.processing.context import Stamp
from tidegate.engine.processing.dispatcher import Dispatcher
from tidegate.engine.processing.input import Input
from tidegate.engine.processing.invocation import Invoker
from tidegate.engine.runtime.environment import Environment
from tidegate.engine.runtime.snapshots import Cut
from tidegate.engine.topology.plan import TaskPlan
from tidegate.faults import fault_point
from tidegate.logs.base import LogRecord, NewRecord, TopicPartition
from tidegate.state.base import SnapshotStore

__all__ = ("EpochAlignment",)


class EpochAlignment:
    def __init__(
        self,
        plan: TaskPlan,
        environment: Environment,
        stamp: Stamp,
        invoker: Invoker,
        dispatcher: Dispatcher,
        store: SnapshotStore,
        sent: Mapping[TopicPartition, int],
    ) -> None:
        """`stamp`: holds the current epoch. `sent`: per output partition, the position after the task's last record."""
        self._plan, self._environment, self._stamp = plan, environment, stamp
        self._invoker, self._dispatcher, self._store, self._sent = invoker, dispatcher, store, sent
        self._clock = environment.clock
        self._scan = EpochScan(environment.app, environment.run)
        self._barrier = 0
        """The latest epoch of a barrier or a received record."""
        self._last: int | None = None
        """The last epoch before a stop: the task starts no work, and enters it when its handlers have ended."""
        self._drained_by = 0.0
        self._snapshots: set[asyncio.Future[None]] = set()
        """Snapshots that are being written or uploaded."""
        dispatcher.epoch = stamp.epoch

    # -- 1. to be moved ----------------------------------------------------------------------------------------------
    def move_to(self, epoch: int, *, stop: bool = False) -> None:
        """A barrier: enter this epoch, unless a later one is entered. `stop`: it is the last one."""
        if not stop:
            self._barrier = max(self._barrier, epoch)
        elif self._last is None:
            self._last = epoch
            self._drained_by = self._clock.monotonic() + self._environment.settings.drain_seconds
            self.tick()

    def cancel_stop(self) -> None:
        """The stop was called off."""
        self._last = None

    def tick(self) -> None:
        """The clock has moved: the last epoch may be due."""
        drained = not self._invoker.waiting or self._clock.monotonic() >= self._drained_by
        if self._last is not None and drained:
            self._barrier = max(self._barrier, self._last)

    def split_by_epoch(self, records: Sequence[LogRecord]) -> Iterator[tuple[int, int, int]]:
        """Split records where a later epoch than that of this task begins, since other tasks of the app may be ahead.
        Yields the epoch (0: none), the start index and the end index of each part."""
        return self._scan.split(records)

    def must_move_for(self, input_: Input, record: LogRecord) -> bool:
        """Whether the task must enter another epoch before it handles this record."""
        self._barrier = max(self._barrier, 0 if input_.outside else self._scan.sent_in(record))
        return self.due

    @property
    def due(self) -> bool:
        """A later epoch is requested: the next commit enters it, and is due at once."""
        return max(self._barrier, self._dispatcher.next_epoch) > self._stamp.epoch

    @property
    def stopping(self) -> bool:
        """The task starts no more work."""
        return self._last is not None

    @property
    def stopped(self) -> bool:
        """The task has entered its last epoch, and makes no more commits."""
        return self._last is not None and self._stamp.epoch >= self._last

    # -- 2. the commit that moves ------------------------------------------------------------------------------------
    @property
    def next(self) -> int:
        """The epoch that the next commit enters; the current one if none is requested."""
        return max(self._barrier, self._dispatcher.next_epoch, self._stamp.epoch)

    def enter(self, epoch: int) -> bool:
        """Enter an epoch at the freeze of a commit. False: it is the current epoch already."""
        if epoch == self._stamp.epoch:
            return False
        self._stamp.epoch = epoch
        self._dispatcher.enter(epoch)
        self._environment.wake()
        return True

    def opened(self, now: int) -> NewRecord:
        """The control record with the epoch in which the task has opened."""
        return OPENED.record(self._plan.id, Opened(run=self._environment.run, epoch=self._stamp.epoch), now)

    # -- 3. its snapshot ---------------------------------------------------------------------------------------------
    def take_snapshot(self, marker: CommitMarker) -> None:
        """Take a snapshot of the commit that has just been applied."""
        snapshots, position = self._environment.snapshots, self._store.position
        if not snapshots.needed(marker.epoch) or position is None:
            return
        self.cancel_snapshots()  # earlier ones are obsolete: the leader triggers one checkpoint at a time
        if self._store.held:
            reason = f"its snapshot in the epoch before {marker.epoch} is not written yet"
            self._begin(snapshots.report_failure(self._plan, marker.epoch, reason))
            return
        self._store.hold()
        fault_point("snapshot.held")
        cut = Cut(
            plan=self._plan,
            epoch=marker.epoch,
            marker=marker,
            position=position,
            sent=dict(self._sent),
            store=self._store,
        )
        self._begin(snapshots.take(cut))

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        future = asyncio.ensure_future(work)
        self._snapshots.add(future)
        future.add_done_callback(self._snapshots.discard)

    @property
    def snapshotting(self) -> Sequence[asyncio.Future[None]]:
        """The snapshots that are being written or uploaded."""
        return tuple(self._snapshots)

    def cancel_snapshots(self) -> None:
        for snapshot in self._snapshots:
            snapshot.cancel()

    async def end_snapshots(self) -> None:
        """Cancel the snapshots and wait for their end: afterwards none reads the store."""
        self.cancel_snapshots()
        await asyncio.gather(*self._snapshots, return_exceptions=True)
