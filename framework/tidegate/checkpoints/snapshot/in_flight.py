"""In-flight records of a cut: sent before the sender's cut, and not processed before the receiver's.

They are in the log, between the receiver's position and the sender's last offset, with an epoch below the cut's.
Records whose handlers had started and not finished at the receiver's cut belong to them, too. For outside topics the
positions are enough: nothing is copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidegate.checkpoints.storage.in_flight_format import InFlightRecord, in_flight_record
from tidegate.checkpoints.storage.manifest import TaskSnapshot
from tidegate.engine.commit.epoch_scan import epoch_of
from tidegate.engine.formats.commit_marker import InputMark, parse_source, source_name
from tidegate.engine.topology.plan import TaskPlan
from tidegate.engine.topology.shuffle import in_flight_topic
from tidegate.errors import CheckpointError
from tidegate.functions.topics import TopicDefinition
from tidegate.logs.base import Log, LogRecord, TopicPartition

__all__ = ("in_flight", "sent_before")


def sent_before(tasks: Iterable[TaskSnapshot]) -> dict[TopicPartition, int]:
    """By partition, the position after the last record that any task had sent before its cut."""
    ends: dict[TopicPartition, int] = {}
    for task in tasks:
        for name, position in task.sent.items():
            source = parse_source(name)
            ends[source] = max(position, ends.get(source, 0))
    return ends


async def in_flight(
    log: Log, plan: TaskPlan, snapshot: TaskSnapshot, app: str, epoch: int, ends: Mapping[TopicPartition, int]
) -> list[InFlightRecord]:
    """The in-flight records of a task in the order of processing: first those carried over from an earlier savepoint,
    then each partition by offset."""
    prefix = f"{app}|{plan.run.id}|".encode()
    found: list[InFlightRecord] = []
    for topic, source in sorted(plan.sources, key=lambda item: not item[0].carried):
        if topic.name in plan.outside:
            continue
        mark = snapshot.marker.inputs.get(source_name(source), InputMark(position=0))
        end = (await log.end_offsets([source]))[source] if topic.carried else ends.get(source, 0)
        origin = _origin(plan, app, topic, source)
        first = (await log.start_offsets([source]))[source]
        if topic.internal:
            _check_not_trimmed(source, first, mark, end)
        for record in await _read(log, source, first, mark, end):
            sent_in = 0 if topic.carried else epoch_of(record.headers, prefix)
            if sent_in is not None and sent_in < epoch:
                found.append(in_flight_record(origin, record))
    return found


def _origin(plan: TaskPlan, app: str, topic: TopicDefinition, source: TopicPartition) -> TopicPartition:
    """The input that a record belongs to: for one carried over from an earlier savepoint, the input it came from."""
    if not topic.carried:
        return source
    for other in plan.definition.topics:
        if in_flight_topic(app, plan.run, plan.definition.name, other.name) == topic.name:
            return TopicPartition(other.name, source.partition)
    raise CheckpointError(f"{plan.id} reads {topic.name}, which belongs to none of its inputs")


def _check_not_trimmed(source: TopicPartition, first: int, mark: InputMark, end: int) -> None:
    """Only the leader trims internal topics, and not while a checkpoint is under way."""
    if mark.resume_at < min(first, end):
        raise CheckpointError(f"{source} begins at {first}, but its in-flight records begin at {mark.resume_at}")


async def _read(log: Log, source: TopicPartition, first: int, mark: InputMark, end: int) -> list[LogRecord]:
    """The records that are not processed: from the position on, and the unfinished ones below it. `first`: the start
    of the partition's log."""
    start = max(mark.resume_at, first)
    if start >= end:
        return []
    unfinished = set(mark.unfinished)
    reader = log.reader()
    try:
        reader.assign({source: start})
        found: list[LogRecord] = []
        while reader.position(source) < end:
            for batch in await reader.read(timeout=5.0):
                found += [
                    record
                    for record in batch.records
                    if record.offset < end and (record.offset >= mark.position or record.offset in unfinished)
                ]
        return found
    finally:
        await reader.close()
