"""How the log lies in RocksDB: the keys of each kind of row, and blocks of records.

    v                              → the format's version
    n                              → the next topic id; ids are never used again, so deleted data cannot come back
    t  name                        → TopicRow
    p  topic id, partition         → PartitionRow
    b  topic id, partition, offset → Block, keyed by the offset of its first record

Numbers in keys are big-endian, so that RocksDB's order is theirs.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

import msgspec
from msgspec import Struct

from tidegate.logs.base import Headers, TopicSpec
from tidegate.logs.embedded.options import EmbeddedOptions
from tidegate.logs.records import Record, check_size

__all__ = (
    "FORMAT",
    "FORMAT_KEY",
    "NEXT_TOPIC_KEY",
    "Block",
    "PartitionRow",
    "Row",
    "TopicRow",
    "block_key",
    "decode_block",
    "decode_partition",
    "decode_topic",
    "encode_blocks",
    "encode_row",
    "offset_of",
    "partition_key",
    "prefix_of",
    "topic_key",
)

FORMAT: Final = b"1"
FORMAT_KEY: Final = b"v"
NEXT_TOPIC_KEY: Final = b"n"

_OFFSET: Final = struct.Struct(">Q")
_PREFIX: Final = struct.Struct(">cII")


class Block(Struct, array_like=True, gc=False):
    """Neighbouring records of one transaction and partition: written together, read together."""

    appended: int
    """When it was appended, by the log's clock: retention counts from here."""
    records: list[Record]


class TopicRow(Struct, array_like=True):
    topic_id: int
    partitions: int
    compact: bool
    retention_ms: int | None
    retention_bytes: int | None
    append_time: bool
    tombstone_ms: int

    @classmethod
    def of(cls, topic_id: int, spec: TopicSpec) -> TopicRow:
        return cls(
            topic_id,
            spec.partitions,
            spec.compact,
            spec.retention_ms,
            spec.retention_bytes,
            spec.append_time,
            spec.tombstone_ms,
        )

    def spec(self, name: str) -> TopicSpec:
        return TopicSpec(
            name=name,
            partitions=self.partitions,
            compact=self.compact,
            retention_ms=self.retention_ms,
            retention_bytes=self.retention_bytes,
            append_time=self.append_time,
            tombstone_ms=self.tombstone_ms,
        )


class PartitionRow(Struct, array_like=True):
    """What is known of a partition. Written after each sync, so that it speaks of synced records only."""

    start: int = 0
    end: int = 0


Row = tuple[int, int, bytes | None, bytes | None, Headers]
"""A Record to be encoded. A tuple is built faster than a Struct, and encoded the same."""

encode_row: Final = msgspec.msgpack.Encoder().encode
decode_block: Final = msgspec.msgpack.Decoder(Block).decode
decode_partition: Final = msgspec.msgpack.Decoder(PartitionRow).decode
decode_topic: Final = msgspec.msgpack.Decoder(TopicRow).decode


def topic_key(name: str) -> bytes:
    return b"t" + name.encode()


def prefix_of(tag: bytes, topic_id: int, partition: int) -> bytes:
    return _PREFIX.pack(tag, topic_id, partition)


def partition_key(topic_id: int, partition: int) -> bytes:
    return prefix_of(b"p", topic_id, partition)


def block_key(prefix: bytes, offset: int) -> bytes:
    return prefix + _OFFSET.pack(offset)


def offset_of(key: bytes) -> int:
    return int.from_bytes(key[-8:], "big")


def encode_blocks(topic: str, rows: list[Row], appended: int, options: EmbeddedOptions) -> Iterator[tuple[int, bytes]]:
    """The blocks for these rows, each with its first offset. RecordTooLargeError if a row is over the limit."""
    for start in range(0, len(rows), options.block_records):
        yield from _halve(topic, rows[start : start + options.block_records], appended, options)


def _halve(topic: str, rows: list[Row], appended: int, options: EmbeddedOptions) -> Iterator[tuple[int, bytes]]:
    """Encode first and look at the size then: adding sizes up beforehand costs as much as encoding."""
    encoded = encode_row((appended, rows))
    if len(encoded) <= min(options.block_bytes, options.max_record_bytes):
        yield rows[0][0], encoded
    elif len(rows) == 1:
        _, _, key, value, headers = rows[0]
        check_size(topic, (key, value, 0, headers), options.max_record_bytes)
        yield rows[0][0], encoded
    else:
        middle = len(rows) // 2
        yield from _halve(topic, rows[:middle], appended, options)
        yield from _halve(topic, rows[middle:], appended, options)
