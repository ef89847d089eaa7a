"""Prefetches state in another thread, for records that were read and are not handled yet.

When a state is much larger than memory, nearly every record needs a value from disk. RocksDB finds it in microseconds
and releases Python's GIL meanwhile, so handlers run on one core while another core reads. A value that does not arrive
in time is loaded when a handler accesses it, as without prefetching.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Final

from tidegate.engine.processing.input import Chunk
from tidegate.logs.records import read_columns
from tidegate.state.cells import ValueCells
from tidegate.state.write_buffer import WriteBuffer

__all__ = ("Prefetch",)

_MIN_KEYS: Final = 64
"""The minimum of values for which a call in another thread pays off."""
_MIN_MISSING_SHARE: Final = 4
"""At least one key in so many must be missing from memory."""


class Prefetch:
    """Prefetches the only state of a service, in one task."""

    def __init__(self, cells: ValueCells, store: WriteBuffer, executor: Executor) -> None:
        self._cells, self._store, self._executor = cells, store, executor
        self._loop = asyncio.get_running_loop()
        self._active = False
        """The last chunk needed values that were not in memory."""
        self._under_way: set[asyncio.Future[list[bytes | None] | None]] = set()

    def begin(self, chunk: Chunk) -> None:
        """Prefetch the state of a chunk that will be handled next."""
        cells, count = self._cells, len(chunk.records)
        if not (self._active or cells.often_missing) or not self._store.has_passed_on:
            return
        keys = cells.not_cached(read_columns(chunk.records, 0, count)[0])
        self._active = len(keys) * _MIN_MISSING_SHARE >= count
        if not self._active or len(keys) < _MIN_KEYS:
            return
        owned, places = cells.places(keys)
        future = self._loop.run_in_executor(self._executor, self._read, chunk, places)
        self._under_way.add(future)
        future.add_done_callback(partial(self._arrived, owned, places, cells.rotations))

    async def close(self) -> None:
        """Wait for the reads that are in flight."""
        await asyncio.gather(*self._under_way, return_exceptions=True)

    def _read(self, chunk: Chunk, places: list[bytes]) -> list[bytes | None] | None:
        """Runs in the other thread. None: too late, the records are being handled already."""
        return None if chunk.index else self._store.get_many(places)

    def _arrived(
        self,
        keys: Sequence[bytes],
        places: list[bytes],
        rotations: int,
        future: asyncio.Future[list[bytes | None] | None],
    ) -> None:
        """Add the values to memory. A value that was changed meanwhile is in memory and wins; after an eviction that is
        not certain, so the values are dropped. A failed read is repeated, and raises, when a handler accesses it."""
        self._under_way.discard(future)
        if future.cancelled() or future.exception() is not None:
            return
        found = future.result()
        if found is not None and rotations == self._cells.rotations:
            self._cells.add_prefetched(keys, places, found)
