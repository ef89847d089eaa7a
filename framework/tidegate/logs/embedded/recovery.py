"""Recovery of the embedded log: loads topics and partitions, and the ends of partitions from their blocks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rocksdict import Rdict

from tidegate.errors import LogUnavailableError
from tidegate.logs.base import TopicPartition
from tidegate.logs.embedded.blocks import (
    FORMAT,
    FORMAT_KEY,
    READABLE,
    Segment,
    TopicRow,
    block_key,
    decode_block,
    decode_partition,
    decode_segment,
    decode_topic,
    prefix_end,
    topic_key,
)
from tidegate.logs.embedded.database import scan
from tidegate.logs.embedded.options import EmbeddedOptions
from tidegate.logs.embedded.partition import Partition, PartitionAppend

__all__ = ("check_format", "load_partitions", "load_topics")


def check_format(database: Rdict, directory: Path) -> None:
    version = database.get(FORMAT_KEY)
    if version is not None and version not in READABLE:
        raise LogUnavailableError(
            f"the log in {directory} has format {version!r}, but this version of Tidegate reads up to {FORMAT!r}. "
            f"Use the version that wrote it, or another directory (--data DIR)."
        )
    if version != FORMAT:
        database.put(FORMAT_KEY, FORMAT)


def load_topics(database: Rdict) -> dict[str, TopicRow]:
    return {
        key[1:].decode(): decode_topic(value) for key, value in scan(database, topic_key(""), prefix_end(topic_key("")))
    }


def load_partitions(database: Rdict, name: str, topic: TopicRow, options: EmbeddedOptions) -> Iterator[Partition]:
    spec = topic.spec(name)
    for number in range(topic.partitions):
        partition = Partition(TopicPartition(name, number), spec, topic.topic_id, options)
        stored = database.get(partition.row_key)
        if stored is not None:
            partition.row = decode_partition(stored)
            partition.segments.extend(_segments(database, partition))
        _count_tail(database, partition)
        partition.next_offset = partition.row.end
        yield partition


def _segments(database: Rdict, partition: Partition) -> Iterator[Segment]:
    for _, stored in scan(database, partition.segment_prefix, prefix_end(partition.segment_prefix)):
        segment = decode_segment(stored)
        if segment.end > partition.row.start:
            yield segment


def _count_tail(database: Rdict, partition: Partition) -> None:
    """Account for blocks that were written after the row. RocksDB made them durable when it replayed its write-ahead
    log."""
    tail = scan(database, block_key(partition.block_prefix, partition.row.end), prefix_end(partition.block_prefix))
    for _, packed in tail:
        block = decode_block(packed)
        end = block.records.offsets[-1] + 2  # the transaction has used up one offset
        partition.commit(PartitionAppend(partition, end, len(block.records), len(packed), block.appended))
