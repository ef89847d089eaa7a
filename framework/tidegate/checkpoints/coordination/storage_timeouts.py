"""How the leader calls the storage, which may hang rather than fail. No call is waited for longer than a checkpoint may
take, and is then left to itself. Only of a manifest that is still being put must one know: as long as it may appear,
nothing is deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from tidegate.checkpoints.snapshot.threads import Threads
from tidegate.checkpoints.storage.checkpoint_storage import CheckpointStorage
from tidegate.checkpoints.storage.manifest import Manifest
from tidegate.errors import CheckpointStorageError

__all__ = ("LAST_SECONDS", "StorageTimeouts")

LAST_SECONDS: Final = 10.0
"""How long the storage has, after the time is up, to say whether the manifest is there."""
_CALLS: Final = 8
"""Those that may hang at the same time; more are not made before one of them ends."""

T = TypeVar("T")


class StorageTimeouts:
    def __init__(self, seconds: float) -> None:
        """`seconds`: how long a checkpoint may take."""
        self._seconds = seconds
        self._threads = Threads(_CALLS)
        self._putting: set[asyncio.Future[None]] = set()

    async def ask(
        self, storage: CheckpointStorage, work: Callable[..., T], *args: object, seconds: float | None = None
    ) -> T:
        """Call the storage. CheckpointStorageError: it does not answer. `seconds`: at most; none: what a checkpoint
        has."""
        longest = self._seconds if seconds is None else min(seconds, self._seconds)
        try:
            async with asyncio.timeout(longest):
                return await self._threads.run(work, *args)
        except TimeoutError:
            raise CheckpointStorageError(storage.url, f"it has not answered for {longest:g} s") from None

    async def put(self, storage: CheckpointStorage, manifest: Manifest) -> None:
        """It cannot be called back. When time is up it is waited for a little longer: then it is there, or hangs."""
        putting = await self._threads.start(storage.put_manifest, manifest)
        self._putting.add(putting)
        putting.add_done_callback(self._putting.discard)
        try:
            await asyncio.shield(putting)
        except asyncio.CancelledError:
            await asyncio.wait([putting], timeout=min(LAST_SECONDS, self._seconds))
            raise

    @property
    def putting(self) -> bool:
        """Manifests may still appear: what they name must be there then."""
        return bool(self._putting)
