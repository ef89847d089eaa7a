"""Which worker owns a task, and its address: a cache of the group's assignment.

It is refreshed after every assignment that this worker gets, and when a request finds that an entry is wrong. During a
rebalance no task has a known owner.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

from tidegate.errors import LogError, NotReadyError
from tidegate.logs.base import TopicPartition
from tidegate.logs.membership import Membership
from tidegate.logs.observer import Worker

__all__ = ("TaskDirectory",)

_REFRESH_INTERVAL: Final = 0.2
"""The least number of seconds between two queries of the group."""


class TaskDirectory:
    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self._workers: list[Worker] = []
        self._generation = -1
        self._refreshed = float("-inf")
        self._refreshing = asyncio.Lock()

    async def workers(self) -> list[Worker]:
        """All workers of the group, this one included."""
        await self._refresh()
        return self._workers

    async def owner(self, task: TopicPartition) -> Worker:
        """NotReadyError: no worker owns the task, or its owner advertises no address."""
        await self._refresh()
        for worker in self._workers:
            if task in worker.tasks and worker.address:
                return worker
        self.invalidate()
        raise NotReadyError(str(task), "the group is rebalancing")

    def invalidate(self) -> None:
        """Query the group again at the next use."""
        self._generation = -1

    async def _refresh(self) -> None:
        if self._generation == self._membership.generation:
            return
        async with self._refreshing:
            generation = self._membership.generation
            if self._generation == generation or time.monotonic() - self._refreshed < _REFRESH_INTERVAL:
                return
            self._refreshed = time.monotonic()
            try:
                self._workers = await self._membership.workers()
            except LogError as error:
                raise NotReadyError("the group of workers", str(error)) from error
            if any(worker.tasks for worker in self._workers):
                self._generation = generation
