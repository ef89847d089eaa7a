"""A bounded run (`--until-end`): processes the records that the log has at the start, then ends.

Outside partitions end at the offsets where they ended at the start; later records are left to the next run. At these
ends the watermark advances to the end of time, so that all event-time timers fire. The run is over when no task, on any
worker, has anything left to read, process or commit. A worker whose own tasks are done stays until then, since the
group assigns it the tasks of a worker that dies.
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

_POLL_SECONDS: Final = 0.2
"""Interval of reading the committed positions of other workers' tasks."""
_LOG_SECONDS: Final = 5.0
"""Interval of logging the tasks of other workers that the run waits for."""


class BoundedRun:
    def __init__(self, plan: Plan, log: Log, tasks: Mapping[str, Task]) -> None:
        """`tasks`: the tasks that run here; the mapping changes."""
        self._plan, self._log, self._tasks = plan, log, tasks
        self.ends: Mapping[TopicPartition, int] = {}
        """The end offsets of the outside partitions."""
        self._polled_at = self._logged_at = 0.0

    async def find_ends(self) -> None:
        outside = {source for task in self._plan.tasks for topic, source in task.sources if topic.name in task.outside}
        self.ends = dict(await self._log.written_offsets(outside))

    def finish_inputs(self, task: Task) -> None:
        """Finish the outside partitions that the task has read to their ends."""
        for source in self.ends.keys() & task.time.outside.keys():
            if task.inputs[source].position >= self.ends[source]:
                task.watermark_tracker.finish_input(source)

    async def is_over(self) -> bool:
        """Everything is read, processed and committed, and all watermarks are at the end of time. Requires that all
        tasks that are assigned here run."""
        if not await self._over_here():
            return False
        here = set(self._tasks)
        if len(here) == len(self._plan.tasks):
            return True
        # Records that arrived during the check of other workers' tasks are found by checking here once more.
        return await self._over_elsewhere(here) and await self._over_here() and here == set(self._tasks)

    async def _over_here(self) -> bool:
        if not all(task.quiet for task in self._tasks.values()) or not await self._all_read():
            return False
        for task in self._tasks.values():
            task.watermark_tracker.finish_timeless()
        return all(task.watermark_tracker.finished and task.quiet for task in self._tasks.values())

    async def _all_read(self) -> bool:
        """Includes records that are committed but not visible to readers yet: in a cycle of services, nothing else
        accounts for them."""
        inputs = {source: input_ for task in self._tasks.values() for source, input_ in task.inputs.items()}
        try:
            ends = await self._written(inputs)
        except LogUnavailableError:
            return False
        return all(input_.position >= ends[source] for source, input_ in inputs.items())

    async def _written(self, sources: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The ends of partitions; for outside partitions, those at the start."""
        return {**await self._log.written_offsets(set(sources) - self.ends.keys()), **self.ends}

    async def _over_elsewhere(self, here: set[str]) -> bool:
        """All other tasks have committed their end, whether or not their worker still lives."""
        now = asyncio.get_running_loop().time()
        if now - self._polled_at < _POLL_SECONDS:
            return False
        try:
            others = [task for task in self._plan.tasks if task.id not in here]
            committed, _ = await read_committed(self._log, others)
            ends = await self._written(source for task in others for _, source in task.sources)
        except LogUnavailableError:
            return False
        finally:
            self._polled_at = asyncio.get_running_loop().time()
        behind = [name for name, task in committed.items() if not task.finished(ends)]
        if behind and now - self._logged_at >= _LOG_SECONDS:
            if self._logged_at:
                logger.info(
                    "the tasks of this worker are done; waiting for other workers: %s", ", ".join(sorted(behind))
                )
            self._logged_at = now
        return not behind
