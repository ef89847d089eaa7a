"""Giving back the space of what was removed. RocksDB notes a removal; only a compaction of its files acts on it."""

from __future__ import annotations

import asyncio

from rocksdict import Rdict

from tidegate.logs.embedded.blocks import after
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
        """So much was removed of the rows whose keys start with `prefix`."""
        self._prefixes.add(prefix)
        self._bytes += size

    def add_leftovers(self, in_use: int) -> None:
        """What was removed, and not given back, before the log was opened."""
        self.add(b"b", max(0, (self._database.property_int_value("rocksdb.total-sst-files-size") or 0) - in_use))

    async def run(self, in_use: int, *, at_once: bool = False) -> None:
        """Compact where something was removed, if it is worth it. In a thread: rocksdict lets go of the GIL."""
        if self._bytes < max(self._options.reclaim_bytes, in_use) and not at_once:
            return
        async with self._one_at_a_time:
            prefixes, self._prefixes, self._bytes = self._prefixes, set(), 0
            for prefix in prefixes:
                compact = asyncio.to_thread(self._database.compact_range, prefix, after(prefix))
                self._compacting = asyncio.ensure_future(compact)
                await asyncio.shield(self._compacting)

    async def stop(self) -> None:
        """The database cannot be closed while a thread is inside."""
        if self._compacting is not None and not self._compacting.done():
            self._database.cancel_all_background(True)
            await asyncio.wait((self._compacting,))
