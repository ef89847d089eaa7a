"""Everything about checkpoints in one worker: its tasks' snapshots, its share in leading, what it has heard."""

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
from tidegate.checkpoints.snapshot.threads import Threads
from tidegate.checkpoints.storage.checkpoint_storage import CheckpointStorage
from tidegate.checkpoints.storage.manifest import TaskSnapshot
from tidegate.checkpoints.storage.snapshot_lookup import Fit, Manifests, fetch
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

_FIND_SECONDS: Final = 600.0
"""How long to look for a checkpoint to start from before the whole changelog is replayed instead."""
_FETCHES: Final = 6
"""Tasks of a worker that fetch at the same time."""


class CheckpointService:
    """What the engine knows as `Snapshots`."""

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
        """leads: whether the group has made this worker the leader."""
        self._plan, self._log, self._stores, self._clock = plan, log, stores, clock
        self._url = url
        self._opened: CheckpointStorage | None = None
        self._manifests: Manifests | None = None
        self._fetches = Threads(_FETCHES)
        self._heard = asyncio.Event()
        self.status = CheckpointStatus()
        self.metrics: CheckpointMetrics | None = None
        self.latest: CheckpointRecord | None = None
        self._taker = Snapshotter(plan.run.id, stores, clock, self.storage, self._barrier, self._tell)
        self.coordinator = Coordinator(plan, log, settings, clock, self.storage, leads)

    async def storage(self) -> CheckpointStorage:
        if self._opened is None:
            self._opened = await asyncio.to_thread(CheckpointStorage, self._url, self._plan.app)
        return self._opened

    # -- what the control topic says ---------------------------------------------------------------------------------
    def hear(self, record: LogRecord) -> None:
        if record.key != CHECKPOINT_KEY or record.value is None:
            return
        latest = decode_checkpoint(record.value)
        if latest.run != self._plan.run.id:
            return
        self.latest = latest
        self.status.hear(self.latest)
        if self.metrics is not None:
            self.metrics.hear(self.latest, self.status)
        self._heard.set()
        self._heard = asyncio.Event()

    def forget(self) -> None:
        self.latest, self._manifests = None, None
        self.status = CheckpointStatus()

    async def _barrier(self, epoch: int) -> CheckpointRecord | None:
        while self.latest is None or self.latest.epoch < epoch:
            await self._heard.wait()
        if self.latest.epoch > epoch or self.latest.state != "begun":
            return None
        return self.latest

    # -- snapshots ---------------------------------------------------------------------------------------------------
    def wanted(self, epoch: int) -> bool:
        latest = self.latest
        if latest is None or epoch > latest.epoch:
            return True
        return epoch == latest.epoch and latest.state == "begun"

    async def take(self, cut: Cut) -> None:
        await self._taker.take(cut)

    async def give_up(self, plan: TaskPlan, epoch: int, reason: str) -> None:
        await self._taker.give_up(plan, epoch, reason)

    async def _tell(self, record: NewRecord) -> None:
        """With a writer that fences nobody: a report counts by its place in the log."""
        writer = await self._log.writer()
        try:
            await writer.append({self._plan.control: [record]})
        finally:
            await writer.close()

    async def fetch(self, plan: TaskPlan, lineage: str, start: int, end: int, oldest_ms: int, directory: Path) -> bool:
        store = "memory" if self._stores.directory is None else "rocksdb"
        fits = Fit(store=store, lineage=lineage, start=start, end=end, oldest_ms=oldest_ms)
        try:
            if self._manifests is None:
                self._manifests = Manifests(await self.storage())
            async with asyncio.timeout(_FIND_SECONDS):
                found = await self._fetch(self._manifests, plan, fits, directory)
        except (TidegateError, OSError, TimeoutError) as error:
            logger.warning("%s: no checkpoint can be used, so its whole changelog is replayed: %s", plan.id, error)
            return False
        return found is not None

    async def _fetch(self, manifests: Manifests, plan: TaskPlan, fits: Fit, directory: Path) -> TaskSnapshot | None:
        """In a thread. Whoever does not wait for its end leaves nothing behind, either."""
        work = await self._fetches.start(fetch, manifests, plan, fits, directory)
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:  # also when time is up
            work.add_done_callback(lambda _: shutil.rmtree(directory, ignore_errors=True))
            raise

    # -- beside the tasks --------------------------------------------------------------------------------------------
    async def run(self) -> None:
        try:
            await self.coordinator.run()
        finally:
            await self.coordinator.resign()

    async def conclude(self) -> None:
        try:
            await self.coordinator.conclude()
        finally:
            await self.coordinator.resign()
