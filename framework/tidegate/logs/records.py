"""The record of the logs that live in this process, and what such a log checks before it writes one."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from tidegate.errors import EncodeError, RecordTooLargeError
from tidegate.logs.base import Headers, NewRecord, TopicPartition

__all__ = ("Record", "check_headers", "check_keys", "check_size", "record_size")

OVERHEAD = 40
"""What a record costs besides its key, value and headers, at most: offset, timestamp and lengths."""


class Record(Struct, array_like=True, gc=False):
    """A LogRecord. Its fields hold bytes and numbers only, so the garbage collector need not know of it: 2 × faster."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()


def record_size(record: NewRecord) -> int:
    key, value, _, headers = record
    extra = sum(len(name) + len(content) + 10 for name, content in headers)
    return OVERHEAD + len(key or b"") + len(value or b"") + extra


def check_size(topic: str, record: NewRecord, limit: int) -> None:
    size = record_size(record)
    if size > limit:
        raise RecordTooLargeError(topic, size, limit)


def check_headers(headers: Headers) -> None:
    """Names are text, values are bytes; nothing else can be written."""
    given: Iterable[object] = headers
    for header in given:
        if not isinstance(header, tuple) or [*map(type, header)] != [str, bytes]:
            raise EncodeError(f"{header!r} cannot be a header: a header is a pair of a name and bytes")


def check_keys(source: TopicPartition, records: Iterable[NewRecord]) -> None:
    """A compacted topic keeps the last record of each key: one without a key has no place there."""
    if any(record[0] is None for record in records):
        raise EncodeError(f"a record for {source} has no key: a compacted topic keeps one record per key")
