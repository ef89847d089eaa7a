"""Deletes what no checkpoint needs any more from internal topics, which have no retention of their own.

A checkpoint that is kept lies behind every position that tasks have committed since. So what lies below the oldest of
those that are kept is read by nobody, whatever happens.
"""

from __future__ import annotations

from tidegate.checkpoints.manifest import Manifest
from tidegate.checkpoints.storage import CheckpointStorage
from tidegate.engine.markers import parse_source
from tidegate.engine.plan import Plan
from tidegate.logs.base import Log, TopicPartition

__all__ = ("kept", "trim")


def kept(storage: CheckpointStorage) -> list[Manifest]:
    return [storage.manifest(epoch) for epoch in storage.checkpoints()]


async def trim(plan: Plan, log: Log, manifests: list[Manifest]) -> None:
    """`manifests`: of all checkpoints that are kept."""
    starts = _starts(plan, manifests)
    if starts:
        await log.trim(starts)


def _starts(plan: Plan, manifests: list[Manifest]) -> dict[TopicPartition, int]:
    """Below every cut of this run; of a topic that one of them does not know, nothing."""
    internal = {name for name, topic in plan.topics.items() if topic.internal}
    cuts = [
        {
            source: mark.resume_at
            for task in manifest.tasks
            for name, mark in task.marker.inputs.items()
            if (source := parse_source(name)).topic in internal
        }
        for manifest in manifests
        if manifest.run == plan.run.id
    ]
    if not cuts:
        return {}
    common = set.intersection(*(set(cut) for cut in cuts))
    return {source: lowest for source in common if (lowest := min(cut[source] for cut in cuts)) > 0}
