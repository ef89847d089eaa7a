"""How the log lies in RocksDB: the keys of each kind of row, and blocks of records.

    v                              → the format's version
    n                              → the next topic id; ids are never used again, so deleted data cannot come back
    t  name                        → TopicRow
    p  topic id, partition         → PartitionRow
    s  topic id, partition, offset → Segment: blocks that retention drops together, keyed by their first offset
    b  topic id, partition, offset → a block of records, keyed by the offset of the first; see `Block`

Numbers in keys are big-endian, so that RocksDB's order is theirs.

A block's first byte says how the rest is laid out: 0 and 1 record after record, as format 2 wrote them; 2 and 3 as
columns, which are read in a third of the time, and are smaller: what all its records have in common is there once. The
odd ones are compressed.
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
from tidegate.logs.records import Columns, Record, Rows

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
    "after",
    "block_key",
    "decode_block",
    "decode_partition",
    "decode_segment",
    "decode_topic",
    "encode_blocks",
    "encode_row",
    "offset_of",
    "prefix_of",
    "topic_key",
)

FORMAT: Final = b"3"
READABLE: Final = (b"2", FORMAT)
"""Formats of logs that can be opened. What is written from then on is of the present one."""
PARTITION_TAGS: Final = (b"p", b"s", b"b")
"""The kinds of rows that a topic's partitions have."""
FORMAT_KEY: Final = b"v"
NEXT_TOPIC_KEY: Final = b"n"

COMPRESS_FROM: Final = 512
"""How large a block must be to be compressed."""

_Headers = tuple[tuple[str, bytes], ...]

_OFFSET: Final = struct.Struct(">Q")
_TOPIC: Final = struct.Struct(">cI")
_PARTITION: Final = struct.Struct(">cII")


class Block(NamedTuple):
    """Neighbouring records of one transaction and partition: written together, read together."""

    appended: int
    """When it was appended, by the log's clock; in a compacted topic's clean part, when it was cleaned."""
    records: Rows


class _ByRecord(Struct, array_like=True, gc=False):
    """As format 2 has it."""

    appended: int
    first: int
    """The offset of its first record."""
    records: list[Record]
    offsets: list[int] | None = None
    """Where there are gaps between them: compaction leaves some."""


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
    """What is known of a partition. Written after each sync, so that it speaks of synced records only."""

    start: int = 0
    end: int = 0
    bytes: int = 0
    """The size of all its blocks."""
    open_bytes: int = 0
    """Of the segment that is being filled: its size, and when it was begun and last appended to."""
    opened: int = 0
    touched: int = 0
    clean_to: int = 0
    """In a compacted topic, records below were cleaned: at most one is left of each key."""
    clean_records: int = 0
    clean_bytes: int = 0
    dirty_records: int = 0


class Segment(Struct, array_like=True, gc=False):
    """Neighbouring blocks, up to but not including `end`."""

    end: int
    bytes: int
    touched: int
    """When it was last appended to."""


encode_row: Final = msgspec.msgpack.Encoder().encode
_decode_by_record: Final = msgspec.msgpack.Decoder(_ByRecord).decode
_decode_by_column: Final = msgspec.msgpack.Decoder(_ByColumn).decode
decode_partition: Final = msgspec.msgpack.Decoder(PartitionRow).decode
decode_segment: Final = msgspec.msgpack.Decoder(Segment).decode
decode_topic: Final = msgspec.msgpack.Decoder(TopicRow).decode


def topic_key(name: str) -> bytes:
    return b"t" + name.encode()


def prefix_of(tag: bytes, topic_id: int, partition: int | None = None) -> bytes:
    """What the keys of this kind of rows of a partition start with, or those of all the partitions of a topic."""
    return _TOPIC.pack(tag, topic_id) if partition is None else _PARTITION.pack(tag, topic_id, partition)


def after(prefix: bytes) -> bytes:
    """The first key after all those that start with `prefix`."""
    return (int.from_bytes(prefix, "big") + 1).to_bytes(len(prefix), "big")


def block_key(prefix: bytes, offset: int) -> bytes:
    return prefix + _OFFSET.pack(offset)


def offset_of(key: bytes) -> int:
    return int.from_bytes(key[-8:], "big")


def encode_blocks(
    records: Columns, offsets: Sequence[int], appended: int, options: EmbeddedOptions
) -> Iterator[tuple[int, Columns, bytes]]:
    """Blocks of these records, each with its first offset and the records in it. One that is too large to share a
    block is alone in its own."""
    for start in range(0, len(records), options.block_records):
        part = slice(start, start + options.block_records)
        yield from _halve(records[part], offsets[part], appended, options)


def _halve(
    records: Columns, offsets: Sequence[int], appended: int, options: EmbeddedOptions
) -> Iterator[tuple[int, Columns, bytes]]:
    """Encode first and look at the size then: adding sizes up beforehand costs as much as encoding."""
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
    """Compress what is worth it. This pays at once: rocksdict's build computes its log's CRC32 in software, so a byte
    that need not be written saves more time than it took to compress it."""
    if len(encoded) >= COMPRESS_FROM:
        compressed = b"\x03" + bytes(lz4.compress_block(encoded))
        if len(compressed) < len(encoded):
            return compressed
    return b"\x02" + encoded


def decode_block(packed: bytes) -> Block:
    raw = memoryview(packed)[1:]
    layout = packed[0]
    whole = lz4.decompress_block(raw) if layout & 1 else raw
    if layout < 2:
        return _from_records(_decode_by_record(whole))
    block = _decode_by_column(whole)
    count = len(block.keys)
    times = block.times if isinstance(block.times, list) else [block.times] * count
    headers: list[Headers] = [block.headers] * count if block.each is None else [*block.each]
    offsets = block.offsets or range(block.first, block.first + count)
    return Block(block.appended, Rows(block.keys, block.values, times, headers, offsets))


def _from_records(block: _ByRecord) -> Block:
    rows = Rows.of(block.records)
    rows.offsets = block.offsets or range(block.first, block.first + len(rows))
    return Block(block.appended, rows)
