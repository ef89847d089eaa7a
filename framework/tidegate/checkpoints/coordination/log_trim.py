"""Deletes from internal topics what all their readers are done with. Time must not remove anything there: records keep
the time of their events, which may be long ago, and what nobody has read yet is needed however old it is.

Below the positions that tasks have committed nobody reads any more, but for one: the leader, which copies what was in
flight at the cut of the checkpoint that is under way. So:

1. The positions are read while no checkpoint is under way.
2. Whoever has read them makes sure that it still leads: then no other leader had begun a checkpoint by that time.
3. What lies below them is deleted. The cut of every later checkpoint lies above them, or there.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidegate.engine.commit.committed_positions import read_markers
from tidegate.engine.formats.commit_marker import CommitMarker, source_name
from tidegate.engine.topology.plan import Plan, TaskPlan
from tidegate.functions.topics import TopicDefinition
from tidegate.logs.base import Log, TopicPartition

__all__ = ("find_done", "trims")


def trims(plan: Plan) -> bool:
    """Whether there are any such topics."""
    return bool(_readers(plan))


async def find_done(plan: Plan, log: Log) -> dict[TopicPartition, int]:
    """Per partition of internal topics, the position below which there is something, and nobody needs it (step 1)."""
    tasks = _readers(plan)
    if not tasks:
        return {}
    done = _lowest(tasks, await read_markers(log, tasks.values()))
    starts = await log.start_offsets(done)
    return {source: position for source, position in done.items() if position > starts[source]}


def _readers(plan: Plan) -> dict[str, TaskPlan]:
    """The tasks that read any."""
    return {task.id: task for task in plan.tasks if any(_trimmed(topic) for topic, _ in task.sources)}


def _trimmed(topic: TopicDefinition) -> bool:
    return topic.internal


def _lowest(tasks: Mapping[str, TaskPlan], markers: Mapping[str, CommitMarker | None]) -> dict[TopicPartition, int]:
    """Of all who read a partition. One that has never committed needs everything."""
    lowest: dict[TopicPartition, int] = {}
    for name, task in tasks.items():
        marker = markers[name]
        for source in (source for topic, source in task.sources if _trimmed(topic)):
            mark = None if marker is None else marker.inputs.get(source_name(source))
            position = 0 if mark is None else mark.resume_at
            lowest[source] = min(position, lowest.get(source, position))
    return lowest
