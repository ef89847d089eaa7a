"""Checkpoints and savepoints: which there are, taking one now, and reading state as it was at one of them.

The stores of a checkpoint are downloaded when somebody asks for them, task by task, and a few are kept open.
"""

from __future__ import annotations

import asyncio
import shutil
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from tidegate.checkpoints.manifest import Manifest
from tidegate.checkpoints.reader import CheckpointReader, open_checkpoint
from tidegate.checkpoints.storage import CheckpointStorage
from tidegate.engine.barriers import CheckpointRecord
from tidegate.errors import CheckpointDamagedError, CheckpointNotFoundError, PositionError
from tidegate.functions.service import ServiceDefinition
from tidegate.host import Host
from tidegate.places import checkpoint_url
from tidegate.query.views import TaskView
from tidegate.state.base import Store

__all__ = ("Checkpoint", "CheckpointProgress", "History", "Past")

KEPT: Final = 16
"""Stores of tasks that stay open."""


class Checkpoint(msgspec.Struct, kw_only=True):
    """A complete checkpoint, or a savepoint."""

    id: str
    """What `as_of` takes: the number of a checkpoint, the name of a savepoint."""
    epoch: int
    name: str | None
    run: str
    started_ms: int
    completed_ms: int
    bytes: int
    uploaded: int
    tasks: int
    in_flight: int
    """Records that were on their way at the cut."""


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

    @property
    def now(self) -> int:
        """By which times to live are judged."""
        return self.manifest.completed_ms


class History:
    def __init__(self, host: Host) -> None:
        self._host = host
        self._readers: dict[str, CheckpointReader] = {}
        self._open: OrderedDict[tuple[str, int, str], tuple[Store, Path]] = OrderedDict()
        self._turn = asyncio.Lock()
        self._taking: set[asyncio.Task[int]] = set()

    async def close(self) -> None:
        for taking in self._taking:
            taking.cancel()
        await asyncio.gather(*self._taking, return_exceptions=True)
        while self._open:
            self._drop()

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
        storage = self._storage()
        return await asyncio.to_thread(lambda: _listed(storage, storage.checkpoints()))

    async def savepoints(self) -> list[Checkpoint]:
        storage = self._storage()
        found = await asyncio.to_thread(lambda: _listed(storage, storage.savepoints()))
        return sorted(found, key=lambda one: one.completed_ms, reverse=True)

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
    async def at(self, id_: str, service: ServiceDefinition, numbers: Iterable[int]) -> Past:
        """The state of some tasks at a checkpoint or savepoint."""
        async with self._turn:
            reader = await asyncio.to_thread(open_checkpoint, self._storage(), id_)
            manifest = reader.manifest
            if manifest.parallelism.get(service.name) != service.tasks:
                raise PositionError(
                    f"as_of={id_}: service {service.name!r} had {manifest.parallelism.get(service.name, 0)} tasks then "
                    f"and has {service.tasks} now, so its keys lie elsewhere. Read it with 'tidegate savepoint'."
                )
            views = [
                TaskView(number=number, store=await self._store(reader, service.name, number)) for number in numbers
            ]
            while len(self._open) > max(KEPT, len(views)):
                self._drop()
        return Past(manifest, views)

    async def _store(self, reader: CheckpointReader, service: str, number: int) -> Store:
        task = reader.task(service, number)
        known = (reader.manifest.id, reader.manifest.completed_ms, task.task)
        found = self._open.get(known)
        if found is None:
            directory = self._directory / f"{reader.manifest.epoch}-{reader.manifest.id}-{task.task}"
            found = await asyncio.to_thread(reader.open_store, task, directory), directory
            self._open[known] = found
        self._open.move_to_end(known)
        return found[0]

    def _drop(self) -> None:
        _, (store, directory) = self._open.popitem(last=False)
        store.close()
        shutil.rmtree(directory, ignore_errors=True)

    @property
    def _directory(self) -> Path:
        return self._host.directory / "as-of"

    def _storage(self) -> CheckpointStorage:
        app = self._host.plan.app
        return CheckpointStorage(checkpoint_url(app, self._host.settings), app)


def _listed(storage: CheckpointStorage, ids: Iterable[int | str]) -> list[Checkpoint]:
    """One that is damaged, or was deleted a moment ago, does not hide the others."""
    found = []
    for id_ in ids:
        with suppress(CheckpointDamagedError, CheckpointNotFoundError):
            found.append(_told(storage.manifest(id_)))
    return found


def _told(manifest: Manifest) -> Checkpoint:
    return Checkpoint(
        id=manifest.id,
        epoch=manifest.epoch,
        name=manifest.name,
        run=manifest.run,
        started_ms=manifest.started_ms,
        completed_ms=manifest.completed_ms,
        bytes=manifest.size,
        uploaded=manifest.uploaded,
        tasks=len(manifest.tasks),
        in_flight=manifest.in_flight_records,
    )
