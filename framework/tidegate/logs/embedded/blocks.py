"""The storage format of the embedded log in RocksDB: keys of each kind of row, and blocks of records.

    v                              → the format's version
    n                              → the next topic id; ids are never reused, so deleted data cannot reappear
    t  name                        → TopicRow
    p  topic id, partition         → PartitionRow
    s  topic id, partition, offset → Segment: blocks that retention drops together, keyed by their first offset
    b  topic id, partition, offset → a block of records, keyed by the offset of the first; see `Block`

Numbers in keys are big-endian, so that the order of RocksDB is their numeric order.

The first byte of a block is its layout: 0 and 1 row by row, as format 2 wrote them; 2 and 3 as columns, which decode in
a third of the time and are smaller, since shared values are stored once. Odd layouts are compressed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgspec
from cramjam import lz4
from msgspec import Struct

from tidegate.logs.base import Headers, TopicSpec
from tidegate.logs.embedded.options import EmbeddedOptions
from tidegate.logs.records import NewRecordColumns, Record, RecordColumns

__all__ = (
    "FORMAT",
    "FORMAT_KEY",
    "NEXT_TOPIC_KEY",
    "PARTITION_TAGS",
    "READABLE",
    "Block",
    "PartitionRow",
    "Segment",
    "TopicRow",
    "block_key",
    "decode_block",
    "decode_partition",
    "decode_segment",
    "decode_topic",
    "encode_blocks",
    "encode_row",
    "offset_of",
    "prefix_end",
    "prefix_of",
    "topic_key",
)

FORMAT: Final = b"3"
READABLE: Final = (b"2", FORMAT)
"""Formats that can be opened. New blocks are written in the current format."""
PARTITION_TAGS: Final = (b"p", b"s", b"b")
"""The kinds of rows of a topic's partitions."""
FORMAT_KEY: Final = b"v"
NEXT_TOPIC_KEY: Final = b"n"

COMPRESS_FROM: Final = 512
"""The smallest encoded block, in bytes, that is compressed."""

_Headers = tuple[tuple[str, bytes], ...]

_OFFSET: Final = struct.Struct(">Q")
_TOPIC: Final = struct.Struct(">cI")
_PARTITION: Final = struct.Struct(">cII")


class Block(NamedTuple):
    """Consecutive records of one transaction in one partition: the unit of writing and reading."""

    appended: int
    """When it was appended, by the log's clock; in the clean part of a compacted topic, when it was cleaned."""
    records: RecordColumns


class _ByRecord(Struct, array_like=True, gc=False):
    """The block layout of format 2."""

    appended: int
    first: int
    """The offset of its first record."""
    records: list[Record]
    offsets: list[int] | None = None
    """None: the offsets are consecutive. Compaction leaves gaps."""


class _ByColumn(Struct, array_like=True, gc=False):
    appended: int
    first: int
    keys: list[bytes | None]
    values: list[bytes | None]
    times: int | list[int]
    headers: _Headers
    each: list[_Headers] | None
    offsets: list[int] | None


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
    """The committed state of a partition. Written after each sync, so that it covers synced records only."""

    start: int = 0
    end: int = 0
    bytes: int = 0
    """The size of all its blocks."""
    open_bytes: int = 0
    """The size of the active segment; then the times of its first and its last append."""
    opened: int = 0
    last_append: int = 0
    clean_to: int = 0
    """In a compacted topic, records below are clean: at most one per key."""
    clean_records: int = 0
    clean_bytes: int = 0
    dirty_records: int = 0


class Segment(Struct, array_like=True, gc=False):
    """Consecutive blocks, up to but not including `end`."""

    end: int
    bytes: int
    last_append: int
    """The time of its last append."""


encode_row: Final = msgspec.msgpack.Encoder().encode
_decode_by_record: Final = msgspec.msgpack.Decoder(_ByRecord).decode
_decode_by_column: Final = msgspec.msgpack.Decoder(_ByColumn).decode
decode_partition: Final = msgspec.msgpack.Decoder(PartitionRow).decode
decode_segment: Final = msgspec.msgpack.Decoder(Segment).decode
decode_topic: Final = msgspec.msgpack.Decoder(TopicRow).decode


def topic_key(name: str) -> bytes:
    return b"t" + name.encode()


def prefix_of(tag: bytes, topic_id: int, partition: int | None = None) -> bytes:
    """The key prefix of this kind of rows of a partition, or of all partitions of a topic."""
    return _TOPIC.pack(tag, topic_id) if partition is None else _PARTITION.pack(tag, topic_id, partition)


def prefix_end(prefix: bytes) -> bytes:
    """The exclusive upper bound of the keys with this prefix."""
    return (int.from_bytes(prefix, "big") + 1).to_bytes(len(prefix), "big")


def block_key(prefix: bytes, offset: int) -> bytes:
    return prefix + _OFFSET.pack(offset)


def offset_of(key: bytes) -> int:
    return int.from_bytes(key[-8:], "big")


def encode_blocks(
    records: NewRecordColumns, offsets: Sequence[int], appended: int, options: EmbeddedOptions
) -> Iterator[tuple[int, NewRecordColumns, bytes]]:
    """Blocks of these records, each with its first offset and its records. A record that is too large to share a block
    gets a block of its own."""
    for start in range(0, len(records), options.block_records):
        part = slice(start, start + options.block_records)
        yield from _halve(records[part], offsets[part], appended, options)


def _halve(
    records: NewRecordColumns, offsets: Sequence[int], appended: int, options: EmbeddedOptions
) -> Iterator[tuple[int, NewRecordColumns, bytes]]:
    """Encodes first and splits if the result is too large: computing the size beforehand costs as much as encoding."""
    gaps = None if offsets[-1] - offsets[0] == len(offsets) - 1 else offsets
    encoded = encode_row(
        (appended, offsets[0], records.keys, records.values, records.times, records.headers, records.each, gaps)
    )
    if len(records) == 1 or len(encoded) <= min(options.block_bytes, options.max_record_bytes):
        yield offsets[0], records, _pack(encoded)
        return
    middle = len(records) // 2
    yield from _halve(records[:middle], offsets[:middle], appended, options)
    yield from _halve(records[middle:], offsets[middle:], appended, options)


def _pack(encoded: bytes) -> bytes:
    """Compresses larger blocks. This also saves time: rocksdict's build computes the write-ahead log's CRC32 in
    software, which takes longer per byte than the compression."""
    if len(encoded) >= COMPRESS_FROM:
        compressed = b"\x03" + bytes(lz4.compress_block(encoded))
        if len(compressed) < len(encoded):
            return compressed
    return b"\x02" + encoded


def decode_block(packed: bytes) -> Block:
    raw = memoryview(packed)[1:]
    layout = packed[0]
    encoded = lz4.decompress_block(raw) if layout & 1 else raw
    if layout < 2:
        return _from_records(_decode_by_record(encoded))
    block = _decode_by_column(encoded)
    count = len(block.keys)
    times = block.times if isinstance(block.times, list) else [block.times] * count
    headers: list[Headers] = [block.headers] * count if block.each is None else [*block.each]
    offsets = block.offsets or range(block.first, block.first + count)
    return Block(block.appended, RecordColumns(block.keys, block.values, times, headers, offsets))


def _from_records(block: _ByRecord) -> Block:
    rows = RecordColumns.of(block.records)
    rows.offsets = block.offsets or range(block.first, block.first + len(rows))
    return Block(block.appended, rows)
