"""The record of the logs that live in this process, and what such a log checks before it writes one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from operator import itemgetter
from typing import Final, overload

from msgspec import Struct

from tidegate.errors import EncodeError, RecordTooLargeError
from tidegate.logs.base import Headers, NewRecord, TopicPartition

__all__ = ("Columns", "Record", "check_headers", "check_keys", "check_size", "record_size")

_key: Final = itemgetter(0)
OVERHEAD = 40
"""What a record costs besides its key, value and headers, at most: offset, timestamp and lengths."""


class Record(Struct, array_like=True, gc=False):
    """A LogRecord. Its fields hold bytes and numbers only, so the garbage collector need not know of it: 2 × faster.

    They are in the order of a NewRecord, so that such a tuple is stored as it is, and read as this."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[tuple[str, bytes], ...] = ()
    offset: int = 0


class Columns(Sequence[NewRecord]):
    """New records of one time, without headers, as columns: see `Changes`. A loop over them makes no tuple for each."""

    def __init__(self, keys: Sequence[bytes], values: Sequence[bytes | None], timestamp: int) -> None:
        self._keys, self._values, self._timestamp = keys, values, timestamp

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[NewRecord]:
        return zip(self._keys, self._values, repeat(self._timestamp), repeat(()), strict=False)

    @overload
    def __getitem__(self, index: int) -> NewRecord: ...
    @overload
    def __getitem__(self, index: slice) -> Columns: ...
    def __getitem__(self, index: int | slice) -> NewRecord | Columns:
        if isinstance(index, slice):
            return Columns(self._keys[index], self._values[index], self._timestamp)
        return self._keys[index], self._values[index], self._timestamp, ()


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
    given: Sequence[object] = headers
    for header in given:
        if not isinstance(header, tuple) or [*map(type, header)] != [str, bytes]:
            raise EncodeError(f"{header!r} cannot be a header: a header is a pair of a name and bytes")


def check_keys(source: TopicPartition, records: Sequence[NewRecord]) -> None:
    """A compacted topic keeps the last record of each key: one without a key has no place there."""
    if not all(map(_key, records)) and any(record[0] is None for record in records):  # an empty key is one, too
        raise EncodeError(f"a record for {source} has no key: a compacted topic keeps one record per key")
