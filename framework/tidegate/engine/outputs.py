"""Where a task's emitted records go."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any, Final

from tidegate.functions.service import ServiceDefinition
from tidegate.functions.topics import TopicDefinition
from tidegate.logs.base import Headers, TopicPartition
from tidegate.logs.records import Columns

__all__ = ("Emitted", "Output", "group", "outputs_by_name")

Emitted = tuple[TopicPartition, bytes | None, bytes | None, int, Headers]
"""A target and a NewRecord for it, in one: there is one for each record that a handler emits."""

_target: Final = itemgetter(0)


class Output:
    """One output topic, with everything looked up that is the same for each record."""

    __slots__ = ("beside", "check", "codec", "encode", "exact", "key_of", "large", "limit", "place", "sources", "topic")

    def __init__(self, topic: TopicDefinition, limit: int, beside: int | None = None) -> None:
        """`limit`: how large a record the log takes. `beside`: the partition in which all keys lie that belong in the
        task, if it is one; it is where records go that have the key of the one that is handled."""
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
    source = service.inputs[0]
    alike = not source.internal and not topic.internal and source.partitions == topic.partitions
    return number if alike else None


def group(emitted: Sequence[Emitted]) -> dict[TopicPartition, Columns]:
    """By target, each in the order in which it was emitted."""
    targets = [*map(_target, emitted)]
    grouped: dict[TopicPartition, list[Emitted]] = {}
    if targets and targets.count(targets[0]) == len(targets):  # as a rule
        return {targets[0]: _columns(emitted)}
    for target, record in zip(targets, emitted, strict=True):
        grouped.setdefault(target, []).append(record)
    return {target: _columns(records) for target, records in grouped.items()}


def _columns(emitted: Sequence[Emitted]) -> Columns:
    _, keys, values, times, headers = zip(*emitted, strict=True)
    return Columns.sharing(keys, values, times, headers)
