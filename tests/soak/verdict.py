"""What must hold between the log and the local stores when all workers have stopped in order, whatever happened before.

1. No transaction is left open.
2. Every task has read its inputs to their ends, and nothing is unfinished.
3. A changelog, folded, is what its task's last owner has on disk.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.faults.support.kafka import KafkaWorld
from tests.faults.support.processes import Zygote
from tidegate.engine.formats.commit_marker import decode_marker, source_name
from tidegate.engine.topology.plan import Plan, TaskPlan
from tidegate.logs.base import Log, TopicPartition
from tidegate.state.layout import MARKER, QUEUE

__all__ = ("verdict",)


def verdict(directory: Path, broker: str, app: str, partitions: int) -> list[str]:
    """Each difference, in words."""
    world = KafkaWorld(directory, Zygote(), app, 0, broker=broker, alone=True, partitions=partitions)

    async def use(log: Log, plan: Plan) -> list[str]:
        sources = [TopicPartition(spec.name, n) for spec in plan.specs for n in range(spec.partitions)]
        found = [f"{source}: a transaction is left open" for source in await world.undecided(log, sources)]
        ends = await log.end_offsets(sources)
        for task in plan.tasks:
            folded = await _fold(log, task.changelog, ends[task.changelog])
            copies = world.copies(task.definition.name, task.number)
            found += _inputs(task, folded, ends)
            found += _store(task, folded, copies[0].content if copies else {})
        return found

    return world.with_log(use)


async def _fold(log: Log, changelog: TopicPartition, end: int) -> dict[bytes, bytes]:
    state: dict[bytes, bytes] = {}
    reader = log.reader()
    reader.assign(await log.start_offsets([changelog]))
    while reader.position(changelog) < end:
        for batch in await reader.read(timeout=1.0):
            for record in batch.records:
                if record.value is None:
                    state.pop(record.key or b"", None)
                else:
                    state[record.key or b""] = record.value
    await reader.close()
    return state


def _inputs(task: TaskPlan, folded: Mapping[bytes, bytes], ends: Mapping[TopicPartition, int]) -> Iterator[str]:
    marker = decode_marker(folded[MARKER])
    for _, source in task.sources:
        mark = marker.inputs[source_name(source)]
        if mark.position != ends[source]:
            yield f"{task.id} has read {source} up to {mark.position} of {ends[source]}"
        if mark.unfinished:
            yield f"{task.id} has not finished {len(mark.unfinished)} records of {source}"


def _store(task: TaskPlan, folded: Mapping[bytes, bytes], content: Mapping[bytes, bytes]) -> Iterator[str]:
    kept = {key: value for key, value in content.items() if key[:1] != QUEUE}
    wrong = [key for key in {*kept, *folded} if kept.get(key) != folded.get(key)]
    if wrong:
        yield f"{task.id}: {len(wrong):,} keys of its store are not as in its changelog, for example {min(wrong)!r}"
