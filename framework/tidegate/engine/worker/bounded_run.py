"""A bounded run (`--until-end`): reads what the log holds at the start, and is over when all of that is dealt with.

Outside partitions end where they ended at the start; what comes later is for the next run. When they are read to
there, the watermark goes to the end of time, so that every event-time timer fires. The run is over when nothing is left
to be read, handled or committed: by no task, wherever it runs. A worker whose own tasks are done stays for those of the
others, since the group gives it the tasks of one that has died.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Final

from tidegate.engine.commit.committed_positions import read_committed
from tidegate.engine.task import Task
from tidegate.engine.topology.plan import Plan
from tidegate.errors import LogUnavailableError
from tidegate.logs.base import Log, TopicPartition

__all__ = ("BoundedRun",)

logger = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 0.2
"""How often to look how far other workers' tasks are."""
_TELL_SECONDS: Final = 5.0
"""After so long without an end to that, and again and again, say what is waited for."""


class BoundedRun:
    def __init__(self, plan: Plan, log: Log, tasks: Mapping[str, Task]) -> None:
        """`tasks`: those that run here; they change."""
        self._plan, self._log, self._tasks = plan, log, tasks
        self.ends: Mapping[TopicPartition, int] = {}
        """Of the partitions that are written from outside."""
        self._looked = self._told = 0.0

    async def find_ends(self) -> None:
        outside = {source for task in self._plan.tasks for topic, source in task.sources if topic.name in task.outside}
        self.ends = dict(await self._log.written_offsets(outside))

    def finish_inputs(self, task: Task) -> None:
        """Outside partitions that are read to the end which they had at the start: no more will come."""
        for source in self.ends.keys() & task.time.outside.keys():
            if task.inputs[source].position >= self.ends[source]:
                task.timekeeper.finish_input(source)

    async def is_over(self) -> bool:
        """Everything is read, handled and committed, and time is at its end. All tasks that are assigned here run."""
        if not await self._over_here():
            return False
        here = set(self._tasks)
        if len(here) == len(self._plan.tasks):
            return True
        # What came while others were asked is seen by looking here once more.
        return await self._over_elsewhere(here) and await self._over_here() and here == set(self._tasks)

    async def _over_here(self) -> bool:
        if not all(task.quiet for task in self._tasks.values()) or not await self._all_read():
            return False
        for task in self._tasks.values():
            task.timekeeper.finish_timeless()
        return all(task.timekeeper.finished and task.quiet for task in self._tasks.values())

    async def _all_read(self) -> bool:
        """Also what was committed and cannot be read yet: in a circle of services nothing else tells of it."""
        inputs = {source: input_ for task in self._tasks.values() for source, input_ in task.inputs.items()}
        try:
            ends = await self._written(inputs)
        except LogUnavailableError:
            return False
        return all(input_.position >= ends[source] for source, input_ in inputs.items())

    async def _written(self, sources: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Where these end; those that are written from outside, where they ended at the start."""
        return {**await self._log.written_offsets(set(sources) - self.ends.keys()), **self.ends}

    async def _over_elsewhere(self, here: set[str]) -> bool:
        """The other tasks have committed their end: whoever owns them may be dead by now."""
        now = asyncio.get_running_loop().time()
        if now - self._looked < _LOOK_SECONDS:
            return False
        try:
            others = [task for task in self._plan.tasks if task.id not in here]
            committed, _ = await read_committed(self._log, others)
            ends = await self._written(source for task in others for _, source in task.sources)
        except LogUnavailableError:
            return False
        finally:
            self._looked = asyncio.get_running_loop().time()
        behind = [name for name, task in committed.items() if not task.finished(ends)]
        if behind and now - self._told >= _TELL_SECONDS:
            if self._told:
                logger.info("all is done here; other workers still have %s", ", ".join(sorted(behind)))
            self._told = now
        return not behind
