"""A bounded run (`--until-end`): reads what the log holds at the start, and is over when all of that is dealt with.

Outside partitions end where they ended at the start; what comes later is for the next run. When they are read to
there, the watermark goes to the end of time, so that every event-time timer fires. The run is over when nothing is left
to be read, handled or committed.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidegate.engine.plan import Plan
from tidegate.engine.task import Task
from tidegate.errors import LogUnavailableError
from tidegate.logs.base import Log, TopicPartition

__all__ = ("BoundedRun",)


class BoundedRun:
    def __init__(self, plan: Plan, log: Log, tasks: Mapping[str, Task]) -> None:
        """`tasks`: those that run here; they change."""
        self._plan, self._log, self._tasks = plan, log, tasks
        self.ends: Mapping[TopicPartition, int] = {}
        """Of the partitions that are written from outside."""

    async def find_ends(self) -> None:
        outside = {source for task in self._plan.tasks for topic, source in task.sources if topic.name in task.outside}
        self.ends = dict(await self._log.end_offsets(outside))

    def finish_inputs(self, task: Task) -> None:
        """Outside partitions that are read to the end which they had at the start: no more will come."""
        for source in self.ends.keys() & task.time.outside.keys():
            if task.inputs[source].position >= self.ends[source]:
                task.timekeeper.finish_input(source)

    async def is_over(self) -> bool:
        """Everything is read, handled and committed, and time is at its end. All tasks run."""
        if not all(task.quiet for task in self._tasks.values()) or not await self._all_read():
            return False
        for task in self._tasks.values():
            task.timekeeper.finish_timeless()
        return all(task.timekeeper.finished and task.quiet for task in self._tasks.values())

    async def _all_read(self) -> bool:
        inputs = {source: input_ for task in self._tasks.values() for source, input_ in task.inputs.items()}
        try:
            ends = await self._log.end_offsets(source for source in inputs if source not in self.ends)
        except LogUnavailableError:
            return False
        ends = {**ends, **self.ends}  # those of tasks that run elsewhere, too
        return all(input_.position >= ends[source] for source, input_ in inputs.items())
