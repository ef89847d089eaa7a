"""Runs retention, compaction and reclaiming of disk space in the background, in small steps."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from rocksdict import Rdict

from tidegate.logs.base import TopicPartition
from tidegate.logs.embedded.group_commit import GroupCommit
from tidegate.logs.embedded.maintenance.cleaner import Cleaner
from tidegate.logs.embedded.maintenance.reclaim import Reclaimer
from tidegate.logs.embedded.maintenance.retention import Retention
from tidegate.logs.embedded.options import EmbeddedOptions
from tidegate.logs.embedded.partition import Partition

__all__ = ("MaintainedLog", "Maintenance")


class MaintainedLog(Protocol):
    """The part of the log that the maintenance uses."""

    @property
    def group_commit(self) -> GroupCommit: ...
    @property
    def database(self) -> Rdict: ...
    @property
    def options(self) -> EmbeddedOptions: ...
    @property
    def now(self) -> Callable[[], int]: ...
    @property
    def partitions(self) -> Mapping[TopicPartition, Partition]: ...


class Maintenance:
    """Three independent periodic jobs: a long pass of the cleaner must not delay retention."""

    def __init__(self, log: MaintainedLog) -> None:
        self._log = log
        self._commits = log.group_commit
        self.reclaimer = Reclaimer(log.database, log.options)
        self._retention = Retention(self._commits, self.reclaimer)
        self._cleaner = Cleaner(log.database, self._commits, log.options)
        self._cleaning = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self.reclaimer.add_leftovers(self._in_use())
        self._tasks = [asyncio.create_task(self._repeat(job)) for job in (self.expire, self.clean, self.reclaim)]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self.reclaimer.stop()

    async def expire(self) -> None:
        """Delete expired segments."""
        for partition in list(self._log.partitions.values()):
            if partition.has_retention:
                await self._retention.expire(partition, self._log.now())

    async def clean(self, *, force: bool = False) -> None:
        """Compact partitions that are due; with `force` all of them."""
        async with self._cleaning:
            for partition in list(self._log.partitions.values()):
                if partition.spec.compact and (force or self._cleaner.is_due(partition)):
                    await self._clean(partition, force)

    async def reclaim(self, *, force: bool = False) -> None:
        """Reclaim the space of deleted rows if there is enough of it; with `force` always."""
        await self.reclaimer.run(self._in_use(), force=force)

    async def _clean(self, partition: Partition, force: bool) -> None:
        """Passes until everything up to the current end is clean."""
        end = partition.row.end
        while not partition.deleted:
            removed = await self._cleaner.clean(partition, self._log.now(), force=force)
            self.reclaimer.add(partition.block_prefix, removed)
            if partition.row.clean_to >= end:
                break

    def _in_use(self) -> int:
        return sum(partition.row.bytes for partition in self._log.partitions.values())

    async def _repeat(self, job: Callable[[], Awaitable[None]]) -> None:
        """An error stops the log: without maintenance it would grow until the disk is full."""
        while self._commits.error is None:
            await asyncio.sleep(self._log.options.maintenance_interval)
            try:
                await job()
            except Exception as error:
                self._commits.fail(error)
