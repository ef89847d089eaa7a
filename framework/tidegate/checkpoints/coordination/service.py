"""Checkpoints in one worker: snapshots of its tasks, the coordinator if it leads, the status from the control topic."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tidegate.checkpoints.coordination.coordinator import Coordinator
from tidegate.checkpoints.coordination.status import CheckpointMetrics, CheckpointStatus
from tidegate.checkpoints.snapshot.snapshotter import Snapshotter
from tidegate.checkpoints.snapshot.threads import StorageThreads
from tidegate.checkpoints.storage.checkpoint_storage import CheckpointStorage
from tidegate.checkpoints.storage.manifest import TaskSnapshot
from tidegate.checkpoints.storage.snapshot_lookup import ManifestCache, SnapshotCriteria, fetch_snapshot
from tidegate.engine.formats.barrier import CHECKPOINT_KEY, CheckpointRecord, decode_checkpoint
from tidegate.engine.runtime.snapshots import Cut
from tidegate.engine.runtime.state_directory import StateDirectory
from tidegate.engine.topology.plan import Plan, TaskPlan
from tidegate.errors import TidegateError
from tidegate.logs.base import Log, LogRecord, NewRecord
from tidegate.settings import Settings
from tidegate.time.clock import Clock

__all__ = ("CheckpointService",)

logger = logging.getLogger(__name__)

_FETCH_SECONDS: Final = 600.0
"""Limit for fetching a snapshot; after that the whole changelog is replayed instead."""
_FETCHES: Final = 6
"""Tasks of a worker that fetch their snapshots concurrently."""


class CheckpointService:
    """Implements `Snapshots`, the contract with the engine."""

    def __init__(
        self,
        plan: Plan,
        log: Log,
        stores: StateDirectory,
        settings: Settings,
        clock: Clock,
        *,
        url: str,
        leads: Callable[[], bool],
    ) -> None:
        """leads: whether the group assigns the control partition to this worker."""
        self._plan, self._log, self._stores, self._clock = plan, log, stores, clock
        self._url = url
        self._opened: CheckpointStorage | None = None
        self._manifests: ManifestCache | None = None
        self._fetches = StorageThreads(_FETCHES)
        self._changed = asyncio.Event()
        """Set, and replaced, when `latest` changes."""
        self.status = CheckpointStatus()
        self.metrics: CheckpointMetrics | None = None
        self.latest: CheckpointRecord | None = None
        self._snapshotter = Snapshotter(plan.run.id, stores, clock, self.storage, self._barrier, self._report)
        self.coordinator = Coordinator(plan, log, settings, clock, self.storage, leads)

    async def storage(self) -> CheckpointStorage:
        if self._opened is None:
            self._opened = await asyncio.to_thread(CheckpointStorage, self._url, self._plan.app)
        return self._opened

    # -- the control topic -------------------------------------------------------------------------------------------
    def on_control_record(self, record: LogRecord) -> None:
        if record.key != CHECKPOINT_KEY or record.value is None:
            return
        latest = decode_checkpoint(record.value)
        if latest.run != self._plan.run.id:
            return
        self.latest = latest
        self.status.update(self.latest)
        if self.metrics is not None:
            self.metrics.update(self.latest, self.status)
        self._changed.set()
        self._changed = asyncio.Event()

    def reset(self) -> None:
        self.latest, self._manifests = None, None
        self.status = CheckpointStatus()

    async def _barrier(self, epoch: int) -> CheckpointRecord | None:
        while self.latest is None or self.latest.epoch < epoch:
            await self._changed.wait()
        if self.latest.epoch > epoch or self.latest.state != "begun":
            return None
        return self.latest

    # -- snapshots ---------------------------------------------------------------------------------------------------
    def needed(self, epoch: int) -> bool:
        latest = self.latest
        if latest is None or epoch > latest.epoch:
            return True
        return epoch == latest.epoch and latest.state == "begun"

    async def take(self, cut: Cut) -> None:
        await self._snapshotter.take(cut)

    async def report_failure(self, plan: TaskPlan, epoch: int, reason: str) -> None:
        await self._snapshotter.report_failure(plan, epoch, reason)

    async def _report(self, record: NewRecord) -> None:
        """Appends without a transactional id: a report is valid by its place in the log, no fencing is needed."""
        writer = await self._log.writer()
        try:
            await writer.append({self._plan.control: [record]})
        finally:
            await writer.close()

    async def fetch(self, plan: TaskPlan, lineage: str, start: int, end: int, oldest_ms: int, directory: Path) -> bool:
        store = "memory" if self._stores.directory is None else "rocksdb"
        criteria = SnapshotCriteria(store=store, lineage=lineage, start=start, end=end, oldest_ms=oldest_ms)
        try:
            if self._manifests is None:
                self._manifests = ManifestCache(await self.storage())
            async with asyncio.timeout(_FETCH_SECONDS):
                found = await self._fetch(self._manifests, plan, criteria, directory)
        except (TidegateError, OSError, TimeoutError) as error:
            logger.warning("%s: no checkpoint can be used; the whole changelog is replayed: %s", plan.id, error)
            return False
        return found is not None

    async def _fetch(
        self, manifests: ManifestCache, plan: TaskPlan, criteria: SnapshotCriteria, directory: Path
    ) -> TaskSnapshot | None:
        """In a thread, which cannot be cancelled: after a cancellation its directory is removed when it ends."""
        work = await self._fetches.start(fetch_snapshot, manifests, plan, criteria, directory)
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:  # also on a timeout
            work.add_done_callback(lambda _: shutil.rmtree(directory, ignore_errors=True))
            raise

    # -- the leader --------------------------------------------------------------------------------------------------
    async def run(self) -> None:
        try:
            await self.coordinator.run()
        finally:
            await self.coordinator.resign()

    async def finish_bounded_run(self) -> None:
        try:
            await self.coordinator.finish_bounded_run()
        finally:
            await self.coordinator.resign()
