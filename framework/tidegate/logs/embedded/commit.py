"""Group commit: transactions are written one by one, synced together, and only then seen.

rocksdict's `write` holds the GIL, and with sync=True through the sync as well; `flush_wal` lets go of it. So:

1. A transaction is written without a sync, on the loop's thread: a copy into memory and the page cache.
2. One thread syncs. What is written meanwhile waits for the next sync, however many transactions that is.
3. After the sync, the partitions' rows are written (not synced: they only repeat what can be found again), so that
   observers in other processes see no record that a power cut could take back.
4. The ends move, writers are answered, readers wake.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from rocksdict import Rdict, WriteBatch

from tidegate.errors import LogError
from tidegate.faults import fault_point
from tidegate.logs.embedded.blocks import encode_row
from tidegate.logs.embedded.database import no_stall, translated
from tidegate.logs.embedded.partition import Partition
from tidegate.logs.reading import Wakeups

__all__ = ("GroupCommit", "Touch")


class Touch(NamedTuple):
    """What a transaction did to one partition."""

    partition: Partition
    end: int


class _Written(NamedTuple):
    touches: list[Touch]
    done: asyncio.Future[None]


class GroupCommit:
    def __init__(self, database: Rdict, directory: Path, wakeups: Wakeups) -> None:
        self.syncs = 0
        self.transactions = 0
        self._database = database
        self._directory = directory
        self._wakeups = wakeups
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tidegate-log-sync")
        self._no_stall = no_stall()
        self._written: list[_Written] = []
        self._syncing: asyncio.Task[None] | None = None
        self._error: LogError | None = None

    def check(self) -> None:
        """Raise what stopped the log, if anything did."""
        if self._error is not None:
            raise self._error

    async def commit(self, batch: WriteBatch, touches: list[Touch]) -> None:
        """Write a transaction, and wait until it is synced."""
        self.write(batch)
        for partition, end in touches:
            partition.next = end
        done = asyncio.get_running_loop().create_future()
        self._written.append(_Written(touches, done))
        if self._syncing is None:
            self._syncing = asyncio.create_task(self._sync())
        fault_point("log.written")
        await asyncio.shield(done)

    def write(self, batch: WriteBatch) -> None:
        """Write without a sync."""
        self.check()
        try:
            self._database.write(batch, self._no_stall)
        except Exception as error:
            self._error = translated(error, self._directory)
            raise self._error from error

    async def drain(self) -> None:
        """Wait until all that is written is synced, or has failed."""
        while self._syncing is not None:
            await asyncio.wait((self._syncing,))

    async def close(self) -> None:
        await self.drain()
        self._thread.shutdown()

    async def _sync(self) -> None:
        loop = asyncio.get_running_loop()
        while self._written:
            group, self._written = self._written, []
            try:
                await loop.run_in_executor(self._thread, self.sync)
                self._publish(group)
            except Exception as error:
                self._fail(group, error)
        self._syncing = None

    def sync(self) -> None:
        """Blocks: called in the thread."""
        self._database.flush_wal(True)
        self.syncs += 1

    def _publish(self, group: list[_Written]) -> None:
        ends = {partition: end for written in group for partition, end in written.touches}
        rows = WriteBatch(raw_mode=True)
        for partition, end in ends.items():
            partition.row.end = end
            rows.put(partition.key, encode_row(partition.row))
        self.write(rows)
        self.transactions += len(group)
        for written in group:
            if not written.done.done():
                written.done.set_result(None)
        self._wakeups.wake()

    def _fail(self, group: list[_Written], error: Exception) -> None:
        self._error = error if isinstance(error, LogError) else translated(error, self._directory)
        for written in group + self._written:
            if not written.done.done():
                written.done.set_exception(self._error)
        self._written = []
