"""Where a task's emitted records go."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tidegate.functions.topics import TopicDefinition
from tidegate.logs.base import Headers, NewRecord, TopicPartition

__all__ = ("Emitted", "Output", "group")

Emitted = tuple[TopicPartition, bytes | None, bytes | None, int, Headers]
"""A target and a record for it."""


class Output:
    """One output topic, with everything looked up that is the same for each record."""

    __slots__ = ("check", "codec", "encode", "key_of", "large", "limit", "place", "sources", "topic")

    def __init__(self, topic: TopicDefinition, limit: int) -> None:
        """`limit`: how large a record the log takes."""
        self.limit, self.large = limit, limit // 2
        self.topic, self.codec = topic, topic.codec
        self.check, self.encode = topic.codec.check, topic.codec.encode_raw
        self.place = topic.placement
        self.key_of: Any = topic.key_of if topic.key is not None else None
        self.sources = [TopicPartition(topic.name, number) for number in range(topic.partitions)]


def group(emitted: Iterable[Emitted]) -> dict[TopicPartition, list[NewRecord]]:
    """By target, each in the order in which it was emitted."""
    grouped: dict[TopicPartition, list[NewRecord]] = {}
    for target, key, value, timestamp, headers in emitted:
        records = grouped.get(target)
        if records is None:
            records = grouped[target] = []
        records.append((key, value, timestamp, headers))
    return grouped
