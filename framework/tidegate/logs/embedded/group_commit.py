"""Group commit: transactions are written one by one, synced together, and only then seen.

rocksdict's `write` holds the GIL, and with sync=True through the sync as well; `flush_wal` lets go of it. So:

1. A transaction is written without a sync, on the loop's thread: a copy into memory and the page cache.
2. One thread syncs. What is written meanwhile waits for the next sync, however many transactions that is.
3. After the sync, the partitions' rows are written. They are not synced: whoever opens the log finds the same again.
   Observers in other processes go by them, and so never see a record that a power cut could take back.
4. The ends move, writers are answered, readers wake.
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
from tidegate.logs.embedded.database import Changes, is_stall, no_stall, translated
from tidegate.logs.embedded.partition import Partition, Touch
from tidegate.logs.local_reader import Wakeups

__all__ = ("GroupCommit",)

STALL_PAUSE: Final = 0.005


class _Written(NamedTuple):
    touches: Sequence[Touch]
    done: asyncio.Future[None]


class GroupCommit:
    """The only way in which anything is written to the log's database."""

    def __init__(self, database: Rdict, directory: Path, wakeups: Wakeups) -> None:
        self.syncs = 0
        self.transactions = 0
        self.error: LogError | None = None
        """What stopped the log. Nothing is written any more: what RocksDB has in memory may not be what is on disk."""
        self.order = asyncio.Lock()
        """Held from giving out offsets to writing, which may have to wait for RocksDB."""
        self._database = database
        self._directory = directory
        self._wakeups = wakeups
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tidegate-log-sync")
        self._no_stall = no_stall()
        self._written: list[_Written] = []
        self._syncing: asyncio.Task[None] | None = None

    async def write(self, changes: Changes) -> None:
        """Write without a sync."""
        while True:
            if self.error is not None:
                raise self.error
            try:
                return self._database.write(changes.batch(), self._no_stall)
            except Exception as error:
                if not is_stall(error):
                    raise self.fail(error) from error
            await asyncio.sleep(STALL_PAUSE)

    async def write_for(self, partition: Partition, changes: Changes) -> None:
        """Write changes within a partition, with its row. Nothing is written to one that was deleted meanwhile."""
        async with self.order:
            if not partition.deleted:
                partition.save(changes)
                await self.write(changes)

    def begin_sync(self, touches: Sequence[Touch] = ()) -> asyncio.Future[None]:
        """Sync what was written. The future is done when it is, and the ends of these partitions have moved."""
        for touch in touches:
            touch.partition.next = touch.end
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.add_done_callback(_retrieve)
        self._written.append(_Written(touches, done))
        if self._syncing is None:
            self._syncing = asyncio.create_task(self._sync())
        if touches:
            fault_point("log.written")
        return done

    async def drain(self) -> None:
        """Wait until what is written by now is synced. What others append meanwhile need not be."""
        if self._syncing is not None:
            await self.begin_sync()

    async def close(self) -> None:
        if self._syncing is not None:
            await asyncio.wait((self._syncing,))
        self._thread.shutdown()

    def fail(self, error: Exception) -> LogError:
        """Stop: every append, waiting or to come, ends with this error."""
        if self.error is None:
            self.error = error if isinstance(error, LogError) else translated(error, self._directory)
        for written in self._written:
            if not written.done.done():
                written.done.set_exception(self.error)
        self._written = []
        self._wakeups.wake()
        return self.error

    def sync(self) -> None:
        """Called in the thread, and blocks it."""
        self._database.flush_wal(True)
        self.syncs += 1

    async def _sync(self) -> None:
        loop = asyncio.get_running_loop()
        while self._written:
            group, self._written = self._written, []
            try:
                await loop.run_in_executor(self._thread, self.sync)
            except Exception as error:
                self._written = group + self._written
                self.fail(error)
                break
            await self._publish(group)
        self._syncing = None

    async def _publish(self, group: list[_Written]) -> None:
        touches = [touch for written in group for touch in written.touches]
        rows = Changes()
        for touch in touches:
            touch.partition.commit(touch)
        for partition in {touch.partition for touch in touches}:
            partition.save(rows)
        with suppress(LogError):  # the log has stopped, but this group is synced
            await self.write(rows)
        self.transactions += sum(1 for written in group if written.touches)
        for written in group:
            if not written.done.done():
                written.done.set_result(None)
        self._wakeups.wake()


def _retrieve(done: asyncio.Future[None]) -> None:
    """A writer that no longer waits is no reason for a warning."""
    if not done.cancelled():
        done.exception()
