"""Timeouts for the leader's calls of the checkpoint storage, which may hang rather than fail.

The leader waits for a call no longer than a checkpoint may take, then abandons it. Only a pending put of a manifest is
tracked: as long as the manifest may still appear, nothing is deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from tidegate.checkpoints.snapshot.threads import StorageThreads
from tidegate.checkpoints.storage.checkpoint_storage import CheckpointStorage
from tidegate.checkpoints.storage.manifest import Manifest
from tidegate.errors import CheckpointStorageError

__all__ = ("GRACE_SECONDS", "StorageTimeouts")

GRACE_SECONDS: Final = 10.0
"""How much longer than the timeout the leader waits to learn whether the manifest was written."""
_CALLS: Final = 8
"""Concurrent calls, hanging ones included: further calls wait until one of them ends."""

T = TypeVar("T")


class StorageTimeouts:
    def __init__(self, seconds: float) -> None:
        """`seconds`: the checkpoint timeout."""
        self._seconds = seconds
        self._threads = StorageThreads(_CALLS)
        self._pending_manifests: set[asyncio.Future[None]] = set()

    async def call(
        self, storage: CheckpointStorage, work: Callable[..., T], *args: object, seconds: float | None = None
    ) -> T:
        """Call the storage in a thread. CheckpointStorageError: no answer within `seconds`, or the checkpoint
        timeout if that is shorter."""
        limit = self._seconds if seconds is None else min(seconds, self._seconds)
        try:
            async with asyncio.timeout(limit):
                return await self._threads.run(work, *args)
        except TimeoutError:
            raise CheckpointStorageError(storage.url, f"it has not answered for {limit:g} s") from None

    async def put_manifest(self, storage: CheckpointStorage, manifest: Manifest) -> None:
        """A put cannot be cancelled. On a cancellation it gets the grace period: then the manifest exists, or the call
        hangs."""
        put = await self._threads.start(storage.put_manifest, manifest)
        self._pending_manifests.add(put)
        put.add_done_callback(self._pending_manifests.discard)
        try:
            await asyncio.shield(put)
        except asyncio.CancelledError:
            await asyncio.wait([put], timeout=min(GRACE_SECONDS, self._seconds))
            raise

    @property
    def manifest_pending(self) -> bool:
        """A manifest may still appear: the files that it names must not be deleted."""
        return bool(self._pending_manifests)
