"""Which checkpoints and savepoints there are. A manifest is read once: dashboards ask every few seconds.

It never changes while it is there. But savepoints can be deleted, and their names used again: the storage's own stamp
of the file tells one from the next. What is gone from the storage is gone from here with the next look.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

import msgspec

from tidegate.checkpoints.snapshot.threads import StorageThreads
from tidegate.checkpoints.storage.checkpoint_storage import CheckpointStorage
from tidegate.checkpoints.storage.manifest import Manifest
from tidegate.errors import CheckpointDamagedError, CheckpointNotFoundError, CheckpointStorageError

__all__ = ("Catalogue", "Checkpoint")

_AT_ONCE: Final = 2
"""Looks into the storage; more wait, also if these hang."""


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


_Read = dict[int | str, tuple[str, Checkpoint]]
"""By number or name, the stamp of its manifest, and what that says."""


class Catalogue:
    def __init__(self, storage: Callable[[], CheckpointStorage], seconds: Callable[[], float]) -> None:
        """`seconds`: how long a look into the storage may take."""
        self._open, self._seconds = storage, seconds
        self._threads = StorageThreads(_AT_ONCE)
        self._checkpoints: _Read = {}
        self._savepoints: _Read = {}

    async def checkpoints(self) -> list[Checkpoint]:
        """The newest first."""
        storage = self._open()
        self._checkpoints = await self._look(storage, storage.epochs, self._checkpoints)
        return [told for _, told in self._checkpoints.values()]

    async def savepoints(self) -> list[Checkpoint]:
        """The newest first."""
        storage = self._open()
        self._savepoints = await self._look(storage, storage.savepoint_folders, self._savepoints)
        found = [told for _, told in self._savepoints.values()]
        return sorted(found, key=lambda one: one.completed_ms, reverse=True)

    async def _look(self, storage: CheckpointStorage, ids: Callable[[], Iterable[int | str]], known: _Read) -> _Read:
        seconds = self._seconds()
        try:
            async with asyncio.timeout(seconds):
                return await self._threads.run(lambda: _read(storage, ids(), known))
        except TimeoutError:
            raise CheckpointStorageError(storage.url, f"it has not answered for {seconds:g} s") from None


def _read(storage: CheckpointStorage, ids: Iterable[int | str], known: _Read) -> _Read:
    """One that is damaged, or was deleted a moment ago, does not hide the others."""
    found: _Read = {}
    for id_ in ids:
        stamp = storage.fingerprint(id_)
        if stamp is None:
            continue
        before = known.get(id_)
        if before is not None and before[0] == stamp:
            found[id_] = before
            continue
        with suppress(CheckpointDamagedError, CheckpointNotFoundError):
            found[id_] = stamp, _told(storage.manifest(id_))
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
