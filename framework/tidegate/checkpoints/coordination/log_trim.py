"""Finds the consumed prefixes of internal topics, so that the leader can delete them. Retention by time does not apply
there: records keep the time of their events, which may be long ago, and an unread record is needed however old it is.

Below the positions that tasks have committed there is one more reader: the leader, which copies the in-flight records
of the checkpoint that is under way. So:

1. Read the committed positions while no checkpoint is under way.
2. Confirm the leadership: then no other leader had begun a checkpoint by that time.
3. Delete what lies below the positions. The cut of every later checkpoint is at or above them.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidegate.engine.commit.committed_positions import read_markers
from tidegate.engine.formats.commit_marker import CommitMarker, source_name
from tidegate.engine.topology.plan import Plan, TaskPlan
from tidegate.functions.topics import TopicDefinition
from tidegate.logs.base import Log, TopicPartition

__all__ = ("consumed_positions", "trims")


def trims(plan: Plan) -> bool:
    """Whether the plan has internal topics."""
    return bool(_readers(plan))


async def consumed_positions(plan: Plan, log: Log) -> dict[TopicPartition, int]:
    """Step 1: by partition, the position below which all readers have consumed; only where there is something to
    delete."""
    tasks = _readers(plan)
    if not tasks:
        return {}
    consumed = _lowest(tasks, await read_markers(log, tasks.values()))
    starts = await log.start_offsets(consumed)
    return {source: position for source, position in consumed.items() if position > starts[source]}


def _readers(plan: Plan) -> dict[str, TaskPlan]:
    """The tasks that read an internal topic."""
    return {task.id: task for task in plan.tasks if any(_trimmed(topic) for topic, _ in task.sources)}


def _trimmed(topic: TopicDefinition) -> bool:
    return topic.internal


def _lowest(tasks: Mapping[str, TaskPlan], markers: Mapping[str, CommitMarker | None]) -> dict[TopicPartition, int]:
    """By partition, the lowest position of its readers. A task that has never committed needs everything."""
    lowest: dict[TopicPartition, int] = {}
    for name, task in tasks.items():
        marker = markers[name]
        for source in (source for topic, source in task.sources if _trimmed(topic)):
            mark = None if marker is None else marker.inputs.get(source_name(source))
            position = 0 if mark is None else mark.resume_at
            lowest[source] = min(position, lowest.get(source, position))
    return lowest
