"""A partition as its owner knows it."""

from __future__ import annotations

from tidegate.logs.base import TopicPartition, TopicSpec
from tidegate.logs.embedded.blocks import PartitionRow, partition_key, prefix_of

__all__ = ("Partition",)


class Partition:
    """Offsets and keys of one partition. `row` is what is committed; `next` counts what is only written, too."""

    __slots__ = ("blocks", "key", "next", "row", "source", "spec")

    def __init__(self, source: TopicPartition, spec: TopicSpec, topic_id: int, row: PartitionRow) -> None:
        self.source = source
        self.spec = spec
        self.row = row
        self.next = row.end
        """The offset that the next record gets."""
        self.key = partition_key(topic_id, source.partition)
        self.blocks = prefix_of(b"b", topic_id, source.partition)
