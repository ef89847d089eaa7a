"""Which worker owns a task, and where it answers.

The group knows. It is asked after every assignment that this worker hears of, and when somebody says that an answer
was wrong; while tasks are divided anew, nobody is known to own anything.
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

_PAUSE: Final = 0.2
"""Seconds between two questions to the group."""


class TaskDirectory:
    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self._known: list[Worker] = []
        self._generation = -1
        self._asked = float("-inf")
        self._turn = asyncio.Lock()

    async def workers(self) -> list[Worker]:
        """All that are known, this one included."""
        await self._refresh()
        return self._known

    async def owner(self, task: TopicPartition) -> Worker:
        """NotReadyError: nobody, or nobody who says where to ask."""
        await self._refresh()
        for worker in self._known:
            if task in worker.tasks and worker.address:
                return worker
        self.doubt()
        raise NotReadyError(str(task), "the workers are dividing the tasks anew")

    def doubt(self) -> None:
        """Ask anew, the next time."""
        self._generation = -1

    async def _refresh(self) -> None:
        if self._generation == self._membership.generation:
            return
        async with self._turn:
            generation = self._membership.generation
            if self._generation == generation or time.monotonic() - self._asked < _PAUSE:
                return
            self._asked = time.monotonic()
            try:
                self._known = await self._membership.workers()
            except LogError as error:
                raise NotReadyError("the group of workers", str(error)) from error
            if any(worker.tasks for worker in self._known):
                self._generation = generation
