"""The commit of a task: its outputs, its state changes and its positions become visible together.

1. Freeze state, outputs, timers, positions and watermarks, without an await in between. Encode each changed value once.
   Records handled from now on belong to the next commit.
2. Append to the log, in one transaction: outputs, then the changelog with the commit marker last, then progress.
3. When the log acknowledges the transaction, the commit is done. On an error before that, the task is closed, its
   handlers are cancelled, and it is reopened: the log shows whether the transaction was committed.
4. Apply the changes to the local store, in one batch with the position in the changelog. The store may lag behind the
   changelog, and is never ahead of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter

from tidegate.engine.formats.commit_marker import CommitMarker, encode_marker, encode_progress
from tidegate.engine.keyed_state.state_backend import StateBackend
from tidegate.engine.keyed_state.timers import TimerQueue
from tidegate.engine.processing.output import Emissions
from tidegate.engine.runtime.commit_listeners import CommitListeners
from tidegate.engine.runtime.loop_scheduler import LoopScheduler
from tidegate.engine.runtime.metrics import TaskMetrics
from tidegate.engine.topology.plan import TaskPlan
from tidegate.faults import fault_point
from tidegate.logs.base import NewRecord, Records, TopicPartition, Writer
from tidegate.logs.records import NewRecordColumns
from tidegate.state.base import Change, Changes, SnapshotStore, StorePosition
from tidegate.state.layout import MARKER
from tidegate.time.combined_watermark import Progress

__all__ = ("Committer", "Frozen")


@dataclass(kw_only=True)
class Frozen:
    """The contents of a commit."""

    changes: Changes
    local: list[Change]
    """Changes of the store only, derived from `changes`: they are not in the changelog."""
    outputs: dict[TopicPartition, NewRecordColumns]
    marker: CommitMarker
    progress: Progress | None
    notices: list[NewRecord]
    """Other records for the control topic."""
    now: int
    started: float = field(default_factory=perf_counter)


class Committer:
    def __init__(
        self,
        plan: TaskPlan,
        backend: StateBackend,
        queues: Mapping[int, TimerQueue],
        store: SnapshotStore,
        writer: Writer,
        emitted: Emissions,
        metrics: TaskMetrics,
        commits: CommitListeners | None = None,
        turns: LoopScheduler | None = None,
    ) -> None:
        self._plan, self._backend, self._queues, self._store = plan, backend, queues, store
        self._writer, self._emitted, self._metrics = writer, emitted, metrics
        self._listeners, self._turns = commits or CommitListeners(), turns or LoopScheduler()
        self.sent: dict[TopicPartition, int] = {}
        """Per output partition, the position after the last record of this task."""
        self.extra_changes: list[Change] = []
        """Changes for the next commit that are not made by handlers."""
        self.commits = 0
        """Number of commits."""

    def freeze(
        self, marker: CommitMarker, progress: Progress | None, now: int, notices: list[NewRecord] | None = None
    ) -> Frozen:
        """Step 1."""
        changes, self.extra_changes = Changes(self.extra_changes), []
        local: list[Change] = []
        self._backend.timers.freeze_queue(local)
        for cells in self._backend.all:
            cells.freeze(changes)
        for queue in self._queues.values():
            queue.freeze()
        outputs = self._emitted.by_target()
        self._emitted.clear()
        fault_point("commit.frozen")
        return Frozen(
            changes=changes,
            local=local,
            outputs=outputs,
            marker=marker,
            progress=progress,
            notices=notices or [],
            now=now,
        )

    async def commit(self, frozen: Frozen) -> None:
        """Steps 2 to 4."""
        await self._turns.next()
        changes, marker = frozen.changes, (MARKER, encode_marker(frozen.marker))
        records: dict[TopicPartition, Sequence[NewRecord]] = dict(frozen.outputs)
        records[self._plan.changelog] = NewRecordColumns(
            [*changes.places, MARKER], [*changes.values, marker[1]], frozen.now
        )
        fault_point("commit.appending")
        positions = await self._writer.append(records, self._with_progress(frozen))
        fault_point("commit.appended")
        await self._turns.next()
        while self._store.pass_on():  # in pieces, so that applying the changes does not block the event loop
            await self._turns.next()
        self._metrics.changes.inc(len(frozen.changes))
        self._apply(frozen, marker, positions[self._plan.changelog])
        self._count(frozen)
        fault_point("commit.applied")

    def _with_progress(self, frozen: Frozen) -> Callable[[Mapping[TopicPartition, int]], Records] | None:
        """Appends progress to the same transaction: its watermark holds up to the offsets that the outputs have got."""

        def then(positions: Mapping[TopicPartition, int]) -> Records:
            self.sent.update({source: at for source, at in positions.items() if source != self._plan.changelog})
            control = [*frozen.notices, *([] if frozen.progress is None else [self._progress(frozen, frozen.progress)])]
            return {self._plan.control: control} if control else {}

        return then

    def _progress(self, frozen: Frozen, known: Progress) -> NewRecord:
        progress = Progress(sender=known.sender, watermark=known.watermark, idle=known.idle, sent=dict(self.sent))
        raw = encode_progress(progress, frozen.marker.run, frozen.marker.epoch)
        return self._plan.id.encode(), raw, frozen.now, ()

    def _apply(self, frozen: Frozen, marker: Change, position: int) -> None:
        """Step 4."""
        at = StorePosition(frozen.marker.lineage, position, frozen.now)
        frozen.changes.extend((*frozen.local, marker))
        self._store.apply(frozen.changes, at)
        self._backend.applied()
        for queue in self._queues.values():
            queue.applied()
        self._listeners.notify(self._plan.id, frozen.changes)

    def _count(self, frozen: Frozen) -> None:
        self.commits += 1
        self._metrics.commits.inc()
        self._metrics.commit_seconds.observe(perf_counter() - frozen.started)
        self._metrics.emitted.inc(sum(map(len, frozen.outputs.values())))
