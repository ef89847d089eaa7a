"""The list of checkpoints and savepoints. Each manifest is read once and cached: dashboards poll every few seconds.

A manifest never changes, but a savepoint can be deleted and its name reused: the storage's stamp of the file (such as
its ETag) distinguishes them. An entry that has left the storage leaves the cache at the next listing.
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

_CONCURRENT_LISTINGS: Final = 2
"""Further listings wait, even if these hang."""


class Checkpoint(msgspec.Struct, kw_only=True):
    """A complete checkpoint, or a savepoint."""

    id: str
    """The value of `as_of`: the number of a checkpoint, the name of a savepoint."""
    epoch: int
    name: str | None
    run: str
    started_ms: int
    completed_ms: int
    bytes: int
    uploaded: int
    tasks: int
    in_flight: int
    """Records that were in flight at the cut."""


_Manifests = dict[int | str, tuple[str, Checkpoint]]
"""By number or name: the stamp of the manifest, and its contents."""


class Catalogue:
    def __init__(self, storage: Callable[[], CheckpointStorage], seconds: Callable[[], float]) -> None:
        """`seconds`: the timeout of a listing."""
        self._open, self._seconds = storage, seconds
        self._threads = StorageThreads(_CONCURRENT_LISTINGS)
        self._checkpoints: _Manifests = {}
        self._savepoints: _Manifests = {}

    async def checkpoints(self) -> list[Checkpoint]:
        """The newest first."""
        storage = self._open()
        self._checkpoints = await self._list(storage, storage.epochs, self._checkpoints)
        return [checkpoint for _, checkpoint in self._checkpoints.values()]

    async def savepoints(self) -> list[Checkpoint]:
        """The newest first."""
        storage = self._open()
        self._savepoints = await self._list(storage, storage.savepoint_folders, self._savepoints)
        found = [savepoint for _, savepoint in self._savepoints.values()]
        return sorted(found, key=lambda savepoint: savepoint.completed_ms, reverse=True)

    async def _list(
        self, storage: CheckpointStorage, ids: Callable[[], Iterable[int | str]], known: _Manifests
    ) -> _Manifests:
        seconds = self._seconds()
        try:
            async with asyncio.timeout(seconds):
                return await self._threads.run(lambda: _read(storage, ids(), known))
        except TimeoutError:
            raise CheckpointStorageError(storage.url, f"it has not answered for {seconds:g} s") from None


def _read(storage: CheckpointStorage, ids: Iterable[int | str], known: _Manifests) -> _Manifests:
    """A damaged checkpoint, or one that was deleted a moment ago, is left out."""
    found: _Manifests = {}
    for id_ in ids:
        stamp = storage.fingerprint(id_)
        if stamp is None:
            continue
        before = known.get(id_)
        if before is not None and before[0] == stamp:
            found[id_] = before
            continue
        with suppress(CheckpointDamagedError, CheckpointNotFoundError):
            found[id_] = stamp, _checkpoint(storage.manifest(id_))
    return found


def _checkpoint(manifest: Manifest) -> Checkpoint:
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
