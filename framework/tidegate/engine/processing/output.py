"""The outputs of a task: the emitted records, and the topics that they go to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tidegate.functions.definition import ServiceDefinition
from tidegate.functions.topics import TopicDefinition
from tidegate.logs.base import Headers, TopicPartition
from tidegate.logs.records import NewRecordColumns

__all__ = ("Emissions", "Emitted", "Output", "outputs_by_name")

Emitted = tuple[TopicPartition, bytes | None, bytes | None, int, Headers]
"""A target partition and the fields of the NewRecord for it."""
_FIELDS: Final = 5


class Emissions(list[Any]):
    """The emitted records, in order, as a flat list of fields. A list of `Emitted` tuples, which the commit would have
    to split into columns again, takes twice the time."""

    __slots__ = ()

    @property
    def total(self) -> int:
        return len(self) // _FIELDS

    def each(self) -> Iterator[Emitted]:
        return zip(*[iter(self)] * _FIELDS, strict=True)

    def by_target(self) -> dict[TopicPartition, NewRecordColumns]:
        """The records of each target, in the order in which they were emitted."""
        targets = self[::_FIELDS]
        if targets and targets.count(targets[0]) == len(targets):  # the common case
            return {targets[0]: self.columns()}
        grouped: dict[TopicPartition, Emissions] = {}
        for record in self.each():
            grouped.setdefault(record[0], Emissions()).extend(record)
        return {target: records.columns() for target, records in grouped.items()}

    def columns(self) -> NewRecordColumns:
        """The records without their targets; at least one."""
        return NewRecordColumns.sharing(*(self[field::_FIELDS] for field in range(1, _FIELDS)))


class Output:
    """One output topic, with everything that is the same for each record looked up once."""

    __slots__ = (
        "check",
        "check_above",
        "co_partition",
        "codec",
        "encode",
        "exact",
        "key_of",
        "limit",
        "place",
        "sources",
        "topic",
    )

    def __init__(self, topic: TopicDefinition, limit: int, co_partition: int | None = None) -> None:
        """`limit`: the largest record that the log accepts, in bytes. `co_partition`: the partition that holds all keys
        of the task, if input and output are co-partitioned: a record with the current key goes there without
        hashing its key."""
        self.limit, self.check_above = limit, limit // 2
        self.topic, self.codec = topic, topic.codec
        self.check, self.exact, self.encode = topic.codec.check, topic.codec.exact, topic.codec.encode_raw
        self.place = topic.placement
        self.key_of: Any = topic.key_of if topic.key is not None else None
        self.sources = [TopicPartition(topic.name, number) for number in range(topic.partitions)]
        self.co_partition = None if co_partition is None or self.key_of is not None else self.sources[co_partition]


def outputs_by_name(service: ServiceDefinition, number: int, limit: int) -> dict[str, Output]:
    """A task's outputs, by the names that handlers may use: first the declared ones, the default output in front,
    then those of the topics."""
    outputs = {
        name: Output(topic, limit, _co_partition(service, number, topic)) for name, topic in service.outputs.items()
    }
    topics = {output.topic.name: output for output in outputs.values()}
    return {**outputs, **{name: output for name, output in topics.items() if name not in outputs}}


def _co_partition(service: ServiceDefinition, number: int, topic: TopicDefinition) -> int | None:
    """The number of the output partition that holds all keys of this task; None: the topics are not co-partitioned."""
    source = service.placement
    co_partitioned = not source.internal and not topic.internal and source.partitions == topic.partitions
    return number if co_partitioned else None
