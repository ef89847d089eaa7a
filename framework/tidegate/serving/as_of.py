"""Checkpoints and savepoints: which there are, taking one now, and reading state as it was at one of them.

The stores of a checkpoint are downloaded when somebody asks for them, task by task, and a few are kept open. A
download goes on when whoever asked has given up: whoever asks next finds it done, or waits for the same one.
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

__all__ = ("CheckpointProgress", "History", "Past")

KEPT: Final = 16
"""Stores of tasks that stay open while nobody reads them."""
_AT_ONCE: Final = 2
"""Downloads; those of commits and checkpoints must not wait for them."""

T = TypeVar("T")
_Known = tuple[str, int, str]
"""Which store of which checkpoint: names of savepoints can be used again."""


class CheckpointProgress(msgspec.Struct, kw_only=True):
    """How checkpoints are doing."""

    healthy: bool
    failures: int
    """In a row."""
    under_way: CheckpointRecord | None
    last_complete: CheckpointRecord | None
    last_failed: CheckpointRecord | None


class Past(msgspec.Struct):
    """State as it was at a checkpoint."""

    manifest: Manifest
    views: list[TaskView]
    """To be read as long as it is in use."""
    watermark: int
    """The lowest of them."""

    @property
    def now(self) -> int:
        """By which times to live are judged."""
        return self.manifest.completed_ms

    @contextmanager
    def readable(self) -> Iterator[None]:
        """A state may have had another type then, which the code of today cannot read."""
        try:
            yield
        except (DecodeError, *FAILURES) as error:
            raise PositionError(
                f"as_of={self.manifest.id}: what was stored then is not of the type that the state has now ({error}). "
                f"Read it with the code of that time, or with 'tidegate savepoint export'."
            ) from error


@dataclass
class _Kept:
    """A store that was downloaded."""

    store: Store
    directory: Path
    users: int = 0
    """Who reads it now: then it stays open."""


class History:
    def __init__(self, host: Host) -> None:
        self._host = host
        self._catalogue = Catalogue(self._storage, lambda: host.settings.api_timeout / 2)
        self._open: OrderedDict[_Known, _Kept] = OrderedDict()
        """Those that were used last at the end."""
        self._fetching: dict[_Known, asyncio.Task[_Kept]] = {}
        self._threads = ThreadPoolExecutor(_AT_ONCE, "as-of")
        self._taking: set[asyncio.Task[int]] = set()
        self._cleared, self._clearing = False, asyncio.Lock()

    async def close(self) -> None:
        begun = [*self._taking, *self._fetching.values()]
        for task in begun:
            task.cancel()
        await asyncio.gather(*begun, return_exceptions=True)
        self._threads.shutdown(wait=False, cancel_futures=True)
        for known in list(self._open):
            self._drop(known)

    # -- which there are ---------------------------------------------------------------------------------------------
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
        """Take one now. Returns its number when it is complete; None: that takes longer, and goes on."""
        taking = asyncio.create_task(self._host.checkpoint(name))
        self._taking.add(taking)
        taking.add_done_callback(self._taken)
        await asyncio.wait({taking}, timeout=seconds)
        return taking.result() if taking.done() else None

    def _taken(self, taking: asyncio.Task[int]) -> None:
        self._taking.discard(taking)
        if not taking.cancelled():
            taking.exception()  # it is told by the status, too

    # -- reading one -------------------------------------------------------------------------------------------------
    @asynccontextmanager
    async def at(self, id_: str, service: ServiceDefinition, numbers: Sequence[int]) -> AsyncIterator[Past]:
        """The state of some tasks at a checkpoint or savepoint. NotReadyError: fetching it goes on."""
        reader = await self._in_thread(open_checkpoint, self._storage(), id_)
        manifest = reader.manifest
        if manifest.parallelism.get(service.name) != service.tasks:
            raise PositionError(
                f"as_of={id_}: service {service.name!r} had {manifest.parallelism.get(service.name, 0)} tasks then "
                f"and has {service.tasks} now, so its keys lie elsewhere. Read it with 'tidegate savepoint'."
            )
        used: list[_Kept] = []
        try:
            await self._use_all(reader, service, numbers, used)
            tasks = zip(numbers, used, strict=True)
            views = [TaskView(number=number, store=kept.store) for number, kept in tasks]
            yield Past(manifest, views, min((view.event_time() for view in views), default=MIN_TIME))
        finally:
            for kept in used:
                kept.users -= 1
            self._tidy()

    async def _use_all(
        self, reader: CheckpointReader, service: ServiceDefinition, numbers: Sequence[int], used: list[_Kept]
    ) -> None:
        """Adds to `used` what must be given back, also if another one fails."""
        try:
            async with asyncio.timeout(self._host.settings.api_timeout):
                for number in numbers:
                    used.append(await self._use(reader, service.name, number))  # noqa: PERF401
        except TimeoutError:
            raise NotReadyError(f"as_of={reader.manifest.id}", "its files are being fetched") from None

    async def _use(self, reader: CheckpointReader, service: str, number: int) -> _Kept:
        task = reader.task(service, number)
        known = (reader.manifest.id, reader.manifest.completed_ms, task.task)
        kept = self._open.get(known)
        if kept is None:
            kept = await asyncio.shield(self._fetch(known, reader, task))
        kept.users += 1
        if known in self._open:
            self._open.move_to_end(known)
        return kept

    def _fetch(self, known: _Known, reader: CheckpointReader, task: TaskSnapshot) -> asyncio.Task[_Kept]:
        fetching = self._fetching.get(known)
        if fetching is None:
            fetching = self._fetching[known] = asyncio.create_task(self._download(known, reader, task))
            fetching.add_done_callback(lambda done: self._fetched(known, done))
        return fetching

    async def _download(self, known: _Known, reader: CheckpointReader, task: TaskSnapshot) -> _Kept:
        async with self._clearing:  # whoever comes meanwhile would lose its own
            if not self._cleared:  # a worker that was killed has left some
                await self._in_thread(shutil.rmtree, self._directory, True)
                self._cleared = True
        directory = self._directory / f"{reader.manifest.epoch}-{reader.manifest.id}-{task.task}"
        kept = self._open[known] = _Kept(await self._in_thread(reader.open_store, task, directory), directory)
        return kept

    def _fetched(self, known: _Known, fetching: asyncio.Task[_Kept]) -> None:
        del self._fetching[known]
        if not fetching.cancelled():
            fetching.exception()  # whoever waits is told

    def _tidy(self) -> None:
        for known in [known for known, kept in self._open.items() if not kept.users][:-KEPT]:
            self._drop(known)

    def _drop(self, known: _Known) -> None:
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
