"""Takes the snapshot of a task while the task keeps processing, and reports it to the leader.

1. The task has committed the marker that names the epoch, and its store is held as of that commit.
2. Write the store's snapshot next to it, in a thread: flush, then hard links. Then the store is released.
3. Wait for the barrier, if a record of the epoch arrived first: the barrier says where the files go, and which can be
   shared.
4. Upload the files that the newest complete checkpoint does not have. A savepoint shares nothing: upload all of them.
5. Put the description of the task's snapshot.
6. Report on the control topic: the path of the description, or the failure.
"""

from __future__ import annotations

import asyncio
import logging
import posixpath
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, Literal

from tidegate.checkpoints.control_messages import REPORTS, Report
from tidegate.checkpoints.snapshot.threads import StorageThreads, run_to_completion
from tidegate.checkpoints.storage.checkpoint_storage import CheckpointStorage, digest_of
from tidegate.checkpoints.storage.manifest import FileRef, TaskSnapshot, encode_task
from tidegate.engine.formats.barrier import CheckpointRecord
from tidegate.engine.formats.commit_marker import source_name
from tidegate.engine.runtime.snapshots import Cut
from tidegate.engine.runtime.state_directory import StateDirectory
from tidegate.engine.topology.plan import TaskPlan
from tidegate.errors import CheckpointDamagedError, CheckpointNotFoundError
from tidegate.faults import fault_point
from tidegate.logs.base import NewRecord
from tidegate.time.clock import Clock

__all__ = ("Snapshotter",)

logger = logging.getLogger(__name__)

_FLUSHES: Final = 2
"""Stores that a worker flushes concurrently: more would wait for the same disk."""
_UPLOADS: Final = 4
"""Files that a worker uploads concurrently, hanging uploads included."""

Storage = Callable[[], Awaitable[CheckpointStorage]]
AppendReport = Callable[[NewRecord], Awaitable[None]]
Barrier = Callable[[int], Awaitable[CheckpointRecord | None]]


class Snapshotter:
    def __init__(
        self, run: str, stores: StateDirectory, clock: Clock, storage: Storage, barrier: Barrier, append: AppendReport
    ) -> None:
        """barrier: waits for the barrier of an epoch; None: that checkpoint has ended. append: to the control topic."""
        self._run, self._stores, self._clock = run, stores, clock
        self._storage, self._barrier, self._append = storage, barrier, append
        self._flushes = asyncio.Semaphore(_FLUSHES)
        self._uploads = StorageThreads(_UPLOADS)
        self._digests: dict[tuple[int, int, int], str] = {}
        """By inode, size and modification time: a store's file never changes, and its hard links share its inode."""
        self._last: dict[str, tuple[int, TaskSnapshot]] = {}
        """By task, its last snapshot and the epoch: the next one may share its files."""

    async def take(self, cut: Cut) -> None:
        task = cut.plan.id
        directory = self._stores.scratch_directory("snapshots", f"{task}-{cut.epoch}")
        try:
            await self._write(cut, directory)  # 2
            report = await self._upload(cut, directory)
            if report is not None:
                await self._report(task, report)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            logger.warning("%s: no snapshot in epoch %d: %s", task, cut.epoch, error)
            await self.report_failure(cut.plan, cut.epoch, str(error) or type(error).__name__)
        finally:
            await run_to_completion(asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True))

    async def report_failure(self, plan: TaskPlan, epoch: int, reason: str) -> None:
        """The leader then aborts at once instead of waiting until time is up."""
        try:
            await self._report(plan.id, Report(run=self._run, epoch=epoch, error=reason))
        except Exception as error:
            logger.warning("%s: the failed snapshot of epoch %d could not be reported: %s", plan.id, epoch, error)

    async def _report(self, task: str, report: Report) -> None:
        fault_point("snapshot.reporting")
        await self._append(REPORTS.record(task, report, self._clock.now()))  # 6

    async def _write(self, cut: Cut, directory: Path) -> None:
        """`Store.snapshot` releases the store when it is done; a failure before it begins must release it here."""
        writing = False
        try:
            async with self._flushes:
                fault_point("snapshot.writing")
                writing = True
                await run_to_completion(asyncio.to_thread(cut.store.snapshot, directory))
                fault_point("snapshot.written")
        except BaseException:
            if not writing:
                cut.store.release()
            raise

    async def _upload(self, cut: Cut, directory: Path) -> Report | None:
        """Steps 3 to 5. None: the checkpoint has ended already, so there is nothing to report."""
        barrier = await self._barrier(cut.epoch)
        if barrier is None:
            return None
        storage = await self._storage()
        folder = storage.folder_of(cut.epoch, barrier.name)
        own = "" if barrier.name is None else f"{cut.epoch}/"
        shared = {} if barrier.name is not None else await self._shared(cut, barrier.base, storage)
        uploaded, files = 0, []
        for local, size, digest in await asyncio.to_thread(self._list_files, directory):
            path = shared.get((digest, size))
            if await self._barrier(cut.epoch) is None:
                return None
            if path is None:
                path = f"{own}files/{cut.plan.id}/{local.name}"
                fault_point("snapshot.uploading")
                await self._uploads.run(storage.upload, local, f"{folder}/{path}")
                uploaded += size
            files.append(FileRef(name=local.name, path=path, size=size, sha256=digest))
        snapshot = _describe(cut, files, "memory" if self._stores.directory is None else "rocksdb")
        described = f"{folder}/{own}tasks/{cut.plan.id}.json"
        fault_point("snapshot.uploaded")
        await self._uploads.run(storage.put, described, encode_task(snapshot))
        if barrier.name is None:
            self._last[cut.plan.id] = cut.epoch, snapshot
        return Report(run=self._run, epoch=cut.epoch, path=described, uploaded=uploaded)

    async def _shared(self, cut: Cut, base: int | None, storage: CheckpointStorage) -> dict[tuple[str, int], str]:
        """By digest and size, the paths of the newest complete checkpoint's files, relative to the new folder."""
        if base is None:
            return {}
        epoch, last = self._last.get(cut.plan.id, (0, None))
        if epoch != base or last is None:
            last = await self._uploads.run(_snapshot_in, storage, base, cut.plan)
        if last is None:
            return {}
        return {(file.sha256, file.size): relative_path(file.path, base) for file in last.files}

    def _list_files(self, directory: Path) -> list[tuple[Path, int, str]]:
        """Path, size and digest of each file."""
        return [(path, path.stat().st_size, self._digest(path)) for path in sorted(directory.iterdir())]

    def _digest(self, path: Path) -> str:
        found = path.stat()
        key = found.st_ino, found.st_size, found.st_mtime_ns
        if key not in self._digests:
            if len(self._digests) > 100_000:
                self._digests.clear()
            self._digests[key] = digest_of(path)
        return self._digests[key]


def relative_path(path: str, epoch: int) -> str:
    """A path from the manifest of this epoch, relative to the folder of another checkpoint."""
    return posixpath.normpath(posixpath.join("..", f"{epoch:08d}", path))


def _describe(cut: Cut, files: list[FileRef], store: Literal["rocksdb", "memory"]) -> TaskSnapshot:
    return TaskSnapshot(
        service=cut.plan.definition.name,
        number=cut.plan.number,
        marker=cut.marker,
        lineage=cut.position.lineage,
        offset=cut.position.offset,
        written_ms=cut.position.written_ms,
        store=store,
        files=files,
        sent={source_name(source): position for source, position in cut.sent.items()},
    )


def _snapshot_in(storage: CheckpointStorage, epoch: int, plan: TaskPlan) -> TaskSnapshot | None:
    try:
        return storage.manifest(epoch).task(plan.definition.name, plan.number)
    except (CheckpointNotFoundError, CheckpointDamagedError):
        return None
