"""Checkpoints and savepoints: the list of them, taking one now, and reading state as of one of them.

The stores of a checkpoint are downloaded on demand, task by task, and the most recently used ones stay open. A download
continues after its request has timed out, so that a retry finds it complete or waits for the same download.
"""

from __future__ import annotations

import asyncio
import shutil
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from tidegate.checkpoints.storage.checkpoint_storage import CheckpointStorage
from tidegate.checkpoints.storage.manifest import Manifest, TaskSnapshot
from tidegate.checkpoints.storage.reader import CheckpointReader, open_checkpoint
from tidegate.codecs import FAILURES
from tidegate.directories import checkpoint_url
from tidegate.engine.formats.barrier import CheckpointRecord
from tidegate.errors import (
    DecodeError,
    NotReadyError,
    PositionError,
)
from tidegate.functions.definition import ServiceDefinition
from tidegate.host.host import Host
from tidegate.query.views import TaskView
from tidegate.serving.catalogue import Catalogue, Checkpoint
from tidegate.state.base import Store
from tidegate.time.clock import MIN_TIME

__all__ = ("AsOfView", "CheckpointHistory", "CheckpointProgress")

KEPT: Final = 16
"""How many stores stay open without a reader."""
_CONCURRENT_DOWNLOADS: Final = 2
"""A pool of its own: commits and checkpoints must not wait for these downloads."""

T = TypeVar("T")
_StoreId = tuple[str, int, str]
"""Checkpoint id, completion time and task. The time is part of it because names of savepoints can be reused."""


class CheckpointProgress(msgspec.Struct, kw_only=True):
    """The state of checkpointing."""

    healthy: bool
    failures: int
    """Consecutive ones."""
    under_way: CheckpointRecord | None
    last_complete: CheckpointRecord | None
    last_failed: CheckpointRecord | None


class AsOfView(msgspec.Struct):
    """State as it was at a checkpoint."""

    manifest: Manifest
    views: list[TaskView]
    """Valid until the context manager that returned them exits."""
    watermark: int
    """The lowest of the tasks."""

    @property
    def now(self) -> int:
        """The time by which times to live are evaluated."""
        return self.manifest.completed_ms

    @contextmanager
    def readable(self) -> Iterator[None]:
        """Translates decode failures: the state may have had another type, which today's code cannot read."""
        try:
            yield
        except (DecodeError, *FAILURES) as error:
            raise PositionError(
                f"as_of={self.manifest.id}: the values stored there are not of the state's current type ({error}). "
                f"Read them with the code of that time, or with 'tidegate savepoint export'."
            ) from error


@dataclass
class _OpenStore:
    """A downloaded store that is open."""

    store: Store
    directory: Path
    users: int = 0
    """Requests that read it now; it stays open while there are any."""


class CheckpointHistory:
    def __init__(self, host: Host) -> None:
        self._host = host
        self._catalogue = Catalogue(self._storage, lambda: host.settings.api_timeout / 2)
        self._open: OrderedDict[_StoreId, _OpenStore] = OrderedDict()
        """The most recently used last."""
        self._fetching: dict[_StoreId, asyncio.Task[_OpenStore]] = {}
        self._threads = ThreadPoolExecutor(_CONCURRENT_DOWNLOADS, "as-of")
        self._taking: set[asyncio.Task[int]] = set()
        self._cleared, self._clearing = False, asyncio.Lock()

    async def close(self) -> None:
        running = [*self._taking, *self._fetching.values()]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        self._threads.shutdown(wait=False, cancel_futures=True)
        for known in list(self._open):
            self._drop(known)

    # -- listing and taking ------------------------------------------------------------------------------------------
    @property
    def progress(self) -> CheckpointProgress:
        status = self._host.checkpoints.status
        return CheckpointProgress(
            healthy=status.healthy,
            failures=status.failures,
            under_way=status.under_way,
            last_complete=status.last_complete,
            last_failed=status.last_failed,
        )

    async def checkpoints(self) -> list[Checkpoint]:
        """The newest first."""
        return await self._catalogue.checkpoints()

    async def savepoints(self) -> list[Checkpoint]:
        """The newest first."""
        return await self._catalogue.savepoints()

    async def take(self, name: str | None, seconds: float) -> int | None:
        """Take a checkpoint. Returns its number when it is complete; None: it is not complete yet and continues."""
        taking = asyncio.create_task(self._host.checkpoint(name))
        self._taking.add(taking)
        taking.add_done_callback(self._taken)
        await asyncio.wait({taking}, timeout=seconds)
        return taking.result() if taking.done() else None

    def _taken(self, taking: asyncio.Task[int]) -> None:
        self._taking.discard(taking)
        if not taking.cancelled():
            taking.exception()  # retrieved: the status reports the failure, too

    # -- reading one -------------------------------------------------------------------------------------------------
    @asynccontextmanager
    async def at(self, id_: str, service: ServiceDefinition, numbers: Sequence[int]) -> AsyncIterator[AsOfView]:
        """The state of some tasks at a checkpoint or savepoint. NotReadyError: the download continues, retry."""
        reader = await self._in_thread(open_checkpoint, self._storage(), id_)
        manifest = reader.manifest
        if manifest.parallelism.get(service.name) != service.tasks:
            raise PositionError(
                f"as_of={id_}: service {service.name!r} had {manifest.parallelism.get(service.name, 0)} tasks then "
                f"and has {service.tasks} now, so its keys are distributed differently. Read it with "
                f"'tidegate savepoint'."
            )
        used: list[_OpenStore] = []
        try:
            await self._use_all(reader, service, numbers, used)
            tasks = zip(numbers, used, strict=True)
            views = [TaskView(number=number, store=kept.store) for number, kept in tasks]
            yield AsOfView(manifest, views, min((view.event_time() for view in views), default=MIN_TIME))
        finally:
            for kept in used:
                kept.users -= 1
            self._evict()

    async def _use_all(
        self, reader: CheckpointReader, service: ServiceDefinition, numbers: Sequence[int], used: list[_OpenStore]
    ) -> None:
        """Adds each opened store to `used`, which the caller releases even if a later store fails."""
        try:
            async with asyncio.timeout(self._host.settings.api_timeout):
                for number in numbers:
                    used.append(await self._use(reader, service.name, number))  # noqa: PERF401
        except TimeoutError:
            raise NotReadyError(f"as_of={reader.manifest.id}", "its files are being fetched") from None

    async def _use(self, reader: CheckpointReader, service: str, number: int) -> _OpenStore:
        task = reader.task(service, number)
        known = (reader.manifest.id, reader.manifest.completed_ms, task.task)
        kept = self._open.get(known)
        if kept is None:
            kept = await asyncio.shield(self._fetch(known, reader, task))
        kept.users += 1
        if known in self._open:
            self._open.move_to_end(known)
        return kept

    def _fetch(self, known: _StoreId, reader: CheckpointReader, task: TaskSnapshot) -> asyncio.Task[_OpenStore]:
        fetching = self._fetching.get(known)
        if fetching is None:
            fetching = self._fetching[known] = asyncio.create_task(self._download(known, reader, task))
            fetching.add_done_callback(lambda done: self._fetched(known, done))
        return fetching

    async def _download(self, known: _StoreId, reader: CheckpointReader, task: TaskSnapshot) -> _OpenStore:
        async with self._clearing:  # a concurrent download must not be deleted
            if not self._cleared:  # leftovers of a killed worker
                await self._in_thread(shutil.rmtree, self._directory, True)
                self._cleared = True
        directory = self._directory / f"{reader.manifest.epoch}-{reader.manifest.id}-{task.task}"
        kept = self._open[known] = _OpenStore(await self._in_thread(reader.open_store, task, directory), directory)
        return kept

    def _fetched(self, known: _StoreId, fetching: asyncio.Task[_OpenStore]) -> None:
        del self._fetching[known]
        if not fetching.cancelled():
            fetching.exception()  # retrieved: the waiting requests get it, too

    def _evict(self) -> None:
        for known in [known for known, kept in self._open.items() if not kept.users][:-KEPT]:
            self._drop(known)

    def _drop(self, known: _StoreId) -> None:
        kept = self._open.pop(known)
        kept.store.close()
        shutil.rmtree(kept.directory, ignore_errors=True)

    async def _in_thread(self, work: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)

    @property
    def _directory(self) -> Path:
        return self._host.directory / "as-of"

    def _storage(self) -> CheckpointStorage:
        app = self._host.plan.app
        return CheckpointStorage(checkpoint_url(app, self._host.settings), app)
