"""Reclaims the disk space of deleted rows: RocksDB frees it only when it compacts its files."""

from __future__ import annotations

import asyncio

from rocksdict import Rdict

from tidegate.logs.embedded.blocks import prefix_end
from tidegate.logs.embedded.options import EmbeddedOptions

__all__ = ("Reclaimer",)


class Reclaimer:
    def __init__(self, database: Rdict, options: EmbeddedOptions) -> None:
        self._database = database
        self._options = options
        self._bytes = 0
        self._prefixes: set[bytes] = set()
        self._one_at_a_time = asyncio.Lock()
        self._compacting: asyncio.Future[None] | None = None

    def add(self, prefix: bytes, size: int) -> None:
        """Account for deleted bytes of rows with this key prefix."""
        self._prefixes.add(prefix)
        self._bytes += size

    def add_leftovers(self, in_use: int) -> None:
        """Account for rows that were deleted, and whose space was not reclaimed, before the log was opened."""
        self.add(b"b", max(0, (self._database.property_int_value("rocksdb.total-sst-files-size") or 0) - in_use))

    async def run(self, in_use: int, *, force: bool = False) -> None:
        """Compact the files of deleted rows if there is enough to reclaim. In a thread: rocksdict releases the GIL."""
        if self._bytes < max(self._options.reclaim_bytes, in_use) and not force:
            return
        async with self._one_at_a_time:
            prefixes, self._prefixes, self._bytes = self._prefixes, set(), 0
            for prefix in prefixes:
                compact = asyncio.to_thread(self._database.compact_range, prefix, prefix_end(prefix))
                self._compacting = asyncio.ensure_future(compact)
                await asyncio.shield(self._compacting)

    async def stop(self) -> None:
        """Waits for a running compaction: the database cannot be closed during it."""
        if self._compacting is not None and not self._compacting.done():
            self._database.cancel_all_background(True)
            await asyncio.wait((self._compacting,))
