"""What the log does besides: retention, compaction, giving space back. One task, in small steps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Protocol

from rocksdict import Rdict

from tidegate.logs.base import TopicPartition
from tidegate.logs.embedded.cleaner import Cleaner
from tidegate.logs.embedded.commit import GroupCommit
from tidegate.logs.embedded.options import EmbeddedOptions
from tidegate.logs.embedded.partition import Partition
from tidegate.logs.embedded.reclaim import Reclaimer
from tidegate.logs.embedded.retention import Retention

__all__ = ("Maintained", "Maintenance")


class Maintained(Protocol):
    """What it needs of its log."""

    @property
    def commits(self) -> GroupCommit: ...
    @property
    def database(self) -> Rdict: ...
    @property
    def options(self) -> EmbeddedOptions: ...
    @property
    def now(self) -> Callable[[], int]: ...
    @property
    def partitions(self) -> Mapping[TopicPartition, Partition]: ...


class Maintenance:
    def __init__(self, log: Maintained) -> None:
        self._log = log
        self.reclaimer = Reclaimer(log.database, log.options)
        self._retention = Retention(log.commits, self.reclaimer)
        self._cleaner = Cleaner(log.database, log.commits, log.options)
        self._one_at_a_time = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.reclaimer.add_leftovers(self._in_use())
        self._task = asyncio.create_task(self._run_now_and_then(), name="tidegate-log-maintenance")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        await self.reclaimer.stop()

    async def run(self, *, at_once: bool = False) -> None:
        """Look after every partition once; `at_once`, even where it is not worth it yet."""
        async with self._one_at_a_time:
            for partition in list(self._log.partitions.values()):
                await self._look_after(partition, at_once)
            await self.reclaimer.run(self._in_use(), at_once=at_once)

    def _in_use(self) -> int:
        return sum(partition.row.bytes for partition in self._log.partitions.values())

    async def _look_after(self, partition: Partition, at_once: bool) -> None:
        now = self._log.now()
        if partition.expires:
            await self._retention.expire(partition, now)
        elif partition.spec.compact:
            await self._clean(partition, now, at_once)

    async def _clean(self, partition: Partition, now: int, at_once: bool) -> None:
        """As many passes as it takes to clean all that is there now."""
        end = partition.row.end
        if at_once or self._cleaner.is_due(partition):
            while True:
                removed = await self._cleaner.clean(partition, now, at_once=at_once)
                self.reclaimer.add(partition.blocks, removed)
                if partition.deleted or partition.row.clean_to >= end:
                    break

    async def _run_now_and_then(self) -> None:
        """An error stops the log: without retention and compaction it would grow until the disk is full."""
        while self._log.commits.error is None:
            await asyncio.sleep(self._log.options.maintenance_interval)
            try:
                await self.run()
            except Exception as error:
                self._log.commits.fail(error)
