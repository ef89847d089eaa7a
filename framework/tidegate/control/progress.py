"""How far the tasks of an app have come, by what they have committed: for those who cannot ask the workers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

from tidegate.control.messages import ServiceStatus, TaskStatus
from tidegate.engine.markers import CommitMarker, InputMark, source_name
from tidegate.engine.plan import Plan, TaskPlan
from tidegate.engine.recovery import last_marker
from tidegate.engine.task import TaskState
from tidegate.logs.base import Reader, TopicPartition
from tidegate.logs.observing import Observer, Worker
from tidegate.time.clock import MIN_TIME

__all__ = ("committed_status",)

_PATIENCE: Final = 5.0
"""How long to look for the next record of partitions that have one, or none, in seconds."""


async def committed_status(plan: Plan, log: Observer, workers: Iterable[Worker]) -> list[ServiceStatus]:
    """Of all tasks that ever ran or could run now.

    1. Find the last commit marker of each task. 2. Compare its positions with the ends of its inputs. 3. Where these
    differ, look for a record: the markers of transactions, and what was removed, leave gaps."""
    existing = await log.topics()
    tasks = [task for task in plan.tasks if {task.changelog.topic, *_inputs(task)} <= existing.keys()]
    sources = {source for task in tasks for _, source in task.sources} | {task.changelog for task in tasks}
    starts, ends = await log.start_offsets(sources), await log.end_offsets(sources)
    reader = log.reader()
    try:
        markers = {task.id: await _marker(task, reader, starts, ends) for task in tasks}
        marks = {
            source: _mark(markers[task.id], source, starts[source]) for task in tasks for _, source in task.sources
        }
        handled = await _past_gaps(reader, {source: mark.resume_at for source, mark in marks.items()}, ends)
    finally:
        await reader.close()
    found: dict[str, list[TaskStatus]] = {name: [] for name in plan.services}
    owners = {task: worker.name for worker in workers for task in worker.tasks}
    for task in tasks:
        owner = owners.get(task.changelog, "")
        found[task.definition.name].append(_status(task, markers[task.id], marks, handled, ends, owner))
    return [ServiceStatus(name, statuses) for name, statuses in found.items()]


def _inputs(task: TaskPlan) -> set[str]:
    return {topic.name for topic in task.definition.inputs}


async def _marker(
    task: TaskPlan, reader: Reader, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> CommitMarker | None:
    try:
        return await last_marker(task.changelog, reader, starts[task.changelog], ends[task.changelog])
    finally:
        reader.unassign([task.changelog])


def _mark(marker: CommitMarker | None, source: TopicPartition, start: int) -> InputMark:
    known = None if marker is None else marker.inputs.get(source_name(source))
    return (known or InputMark(position=start)).from_start(start)


async def _past_gaps(
    reader: Reader, positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Each position moved to the next record, or to the end if there is none."""
    found = dict(positions)
    looking = {source: at for source, at in positions.items() if at < ends[source]}
    reader.assign(looking)
    deadline = asyncio.get_running_loop().time() + _PATIENCE
    while looking and asyncio.get_running_loop().time() < deadline:
        batches = await reader.read(max_records=len(looking), timeout=0.5)
        reached = {source: at for source in looking if (at := reader.position(source)) >= ends[source]}
        reached |= {batch.source: batch.records[0].offset for batch in batches}
        found |= {source: min(at, ends[source]) for source, at in reached.items()}
        reader.unassign(reached)
        looking = {source: at for source, at in looking.items() if source not in reached}
    return found


def _status(
    task: TaskPlan,
    marker: CommitMarker | None,
    marks: Mapping[TopicPartition, InputMark],
    handled: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    worker: str,
) -> TaskStatus:
    sources = [source for _, source in task.sources]
    return TaskStatus(
        number=task.number,
        state=(TaskState.RUNNING if worker else TaskState.CLOSED).value,
        lag=sum(ends[source] - handled[source] for source in sources),
        watermark=MIN_TIME if marker is None else marker.watermark,
        waiting=sum(len(marks[source].unfinished) for source in sources),
        worker=worker,
    )
