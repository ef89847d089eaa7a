"""Where a task's emitted records go."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tidegate.functions.definition import ServiceDefinition
from tidegate.functions.topics import TopicDefinition
from tidegate.logs.base import Headers, TopicPartition
from tidegate.logs.records import NewRecordColumns

__all__ = ("Emissions", "Emitted", "Output", "outputs_by_name")

Emitted = tuple[TopicPartition, bytes | None, bytes | None, int, Headers]
"""A target and a NewRecord for it, in one."""
_FIELDS: Final = 5


class Emissions(list[Any]):
    """What was emitted, in its order: the fields of one `Emitted` after those of the other, without the tuples around
    them. To make those, keep them until the commit and take them apart there again takes twice the time."""

    __slots__ = ()

    @property
    def total(self) -> int:
        return len(self) // _FIELDS

    def each(self) -> Iterator[Emitted]:
        return zip(*[iter(self)] * _FIELDS, strict=True)

    def by_target(self) -> dict[TopicPartition, NewRecordColumns]:
        """The records for each, in the order in which they were emitted."""
        targets = self[::_FIELDS]
        if targets and targets.count(targets[0]) == len(targets):  # as a rule
            return {targets[0]: self.columns()}
        grouped: dict[TopicPartition, Emissions] = {}
        for record in self.each():
            grouped.setdefault(record[0], Emissions()).extend(record)
        return {target: records.columns() for target, records in grouped.items()}

    def columns(self) -> NewRecordColumns:
        """The records without their targets; at least one."""
        return NewRecordColumns.sharing(*(self[field::_FIELDS] for field in range(1, _FIELDS)))


class Output:
    """One output topic, with everything looked up that is the same for each record."""

    __slots__ = ("beside", "check", "codec", "encode", "exact", "key_of", "large", "limit", "place", "sources", "topic")

    def __init__(self, topic: TopicDefinition, limit: int, beside: int | None = None) -> None:
        """`limit`: the log's maximum size of a record. `beside`: the partition of all keys of the task, if there is a
        single one; records with the current key go there."""
        self.limit, self.large = limit, limit // 2
        self.topic, self.codec = topic, topic.codec
        self.check, self.exact, self.encode = topic.codec.check, topic.codec.exact, topic.codec.encode_raw
        self.place = topic.placement
        self.key_of: Any = topic.key_of if topic.key is not None else None
        self.sources = [TopicPartition(topic.name, number) for number in range(topic.partitions)]
        self.beside = None if beside is None or self.key_of is not None else self.sources[beside]


def outputs_by_name(service: ServiceDefinition, number: int, limit: int) -> dict[str, Output]:
    """A task's outputs by the names that handlers may call them: the declared ones, the default first, and those of
    the topics."""
    outputs = {name: Output(topic, limit, _beside(service, number, topic)) for name, topic in service.outputs.items()}
    topics = {output.topic.name: output for output in outputs.values()}
    return {**outputs, **{name: output for name, output in topics.items() if name not in outputs}}


def _beside(service: ServiceDefinition, number: int, topic: TopicDefinition) -> int | None:
    """The partition of an output topic that holds all keys which belong in a task of the service, if it is one."""
    source = service.placement
    alike = not source.internal and not topic.internal and source.partitions == topic.partitions
    return number if alike else None
