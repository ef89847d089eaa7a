"""Group commit: transactions are written one by one, synced together, and visible only after the sync.

rocksdict's `write` holds the GIL, with sync=True also during the sync; `flush_wal` releases it. So:

1. Write a transaction without a sync, on the loop's thread: a copy into memory and the page cache.
2. Sync in one thread. Transactions written meanwhile share the next sync.
3. After the sync, write the partitions' rows. They need no sync: recovery derives them from the blocks. Observers in
   other processes read up to these rows, so they never see a record that a power failure could remove.
4. Advance the ends, resolve the writers' futures, wake the readers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from rocksdict import Rdict

from tidegate.errors import LogError
from tidegate.faults import fault_point
from tidegate.logs.embedded.database import Changes, is_stall, no_slowdown, to_log_error
from tidegate.logs.embedded.partition import Partition, PartitionAppend
from tidegate.logs.local_reader import Wakeups

__all__ = ("GroupCommit",)

STALL_PAUSE: Final = 0.005


class _Unsynced(NamedTuple):
    appends: Sequence[PartitionAppend]
    done: asyncio.Future[None]


class GroupCommit:
    """All writes to the log's database go through this class."""

    def __init__(self, database: Rdict, directory: Path, wakeups: Wakeups) -> None:
        self.syncs = 0
        self.transactions = 0
        self.error: LogError | None = None
        """The error that stopped the log. No write follows it: RocksDB's memory and its files may differ."""
        self.append_lock = asyncio.Lock()
        """Held from the assignment of offsets to the write, which may wait for RocksDB: offsets are written in
        order."""
        self._database = database
        self._directory = directory
        self._wakeups = wakeups
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tidegate-log-sync")
        self._write_options = no_slowdown()
        self._unsynced: list[_Unsynced] = []
        self._syncing: asyncio.Task[None] | None = None

    async def write(self, changes: Changes) -> None:
        """Write without a sync."""
        while True:
            if self.error is not None:
                raise self.error
            try:
                return self._database.write(changes.batch(), self._write_options)
            except Exception as error:
                if not is_stall(error):
                    raise self.fail(error) from error
            await asyncio.sleep(STALL_PAUSE)

    async def write_partition(self, partition: Partition, changes: Changes) -> None:
        """Write changes of a partition with its row, unless the partition was deleted meanwhile."""
        async with self.append_lock:
            if not partition.deleted:
                partition.save(changes)
                await self.write(changes)

    def begin_sync(self, appends: Sequence[PartitionAppend] = ()) -> asyncio.Future[None]:
        """Start a sync of all writes so far. The future is done when they are synced and the ends have advanced."""
        for append in appends:
            append.partition.next_offset = append.end
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.add_done_callback(_retrieve)
        self._unsynced.append(_Unsynced(appends, done))
        if self._syncing is None:
            self._syncing = asyncio.create_task(self._sync())
        if appends:
            fault_point("log.written")
        return done

    async def drain(self) -> None:
        """Wait until all writes so far are synced; later appends may be not."""
        if self._syncing is not None:
            await self.begin_sync()

    async def close(self) -> None:
        if self._syncing is not None:
            await asyncio.wait((self._syncing,))
        self._thread.shutdown()

    def fail(self, error: Exception) -> LogError:
        """Stop the log: pending and later appends fail with this error."""
        if self.error is None:
            self.error = error if isinstance(error, LogError) else to_log_error(error, self._directory)
        for unsynced in self._unsynced:
            if not unsynced.done.done():
                unsynced.done.set_exception(self.error)
        self._unsynced = []
        self._wakeups.wake()
        return self.error

    def sync(self) -> None:
        """Runs in the sync thread, and blocks it."""
        self._database.flush_wal(True)
        self.syncs += 1

    async def _sync(self) -> None:
        loop = asyncio.get_running_loop()
        while self._unsynced:
            group, self._unsynced = self._unsynced, []
            try:
                await loop.run_in_executor(self._thread, self.sync)
            except Exception as error:
                self._unsynced = group + self._unsynced
                self.fail(error)
                break
            await self._publish(group)
        self._syncing = None

    async def _publish(self, group: list[_Unsynced]) -> None:
        """Steps 3 and 4."""
        appends = [append for unsynced in group for append in unsynced.appends]
        rows = Changes()
        for append in appends:
            append.partition.commit(append)
        for partition in {append.partition for append in appends}:
            partition.save(rows)
        with suppress(LogError):  # the log has stopped, but this group is synced
            await self.write(rows)
        self.transactions += sum(1 for unsynced in group if unsynced.appends)
        for unsynced in group:
            if not unsynced.done.done():
                unsynced.done.set_result(None)
        self._wakeups.wake()


def _retrieve(done: asyncio.Future[None]) -> None:
    """Retrieve the exception, or asyncio logs it if the writer was cancelled."""
    if not done.cancelled():
        done.exception()
