"""The progress of an app's tasks from their committed markers, for commands that cannot ask the workers."""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.engine.commit.committed_positions import read_committed
from tidegate.engine.task import TaskState
from tidegate.engine.topology.plan import Plan, TaskPlan
from tidegate.logs.observer import Observer, Worker
from tidegate.owner_rpc.protocol import ServiceStatus, TaskStatus

__all__ = ("committed_status",)


async def committed_status(plan: Plan, log: Observer, workers: Iterable[Worker]) -> list[ServiceStatus]:
    """The status of all tasks of the plan whose topics exist."""
    existing = await log.topics()
    tasks = [task for task in plan.tasks if {task.changelog.topic, *_inputs(task)} <= existing.keys()]
    committed, ends = await read_committed(log, tasks)
    owners = {task: worker.name for worker in workers for task in worker.tasks}
    found: dict[str, list[TaskStatus]] = {name: [] for name in plan.services}
    for task in tasks:
        known, owner = committed[task.id], owners.get(task.changelog, "")
        status = TaskStatus(
            number=task.number,
            state=(TaskState.RUNNING if owner else TaskState.CLOSED).value,
            lag=known.lag(ends),
            watermark=known.watermark,
            waiting=known.unfinished,
            worker=owner,
        )
        found[task.definition.name].append(status)
    return [ServiceStatus(name, statuses) for name, statuses in found.items()]


def _inputs(task: TaskPlan) -> set[str]:
    return {topic.name for topic in task.definition.topics}
