"""The record of the logs that live in this process, and what such a log checks before it writes one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import compress, repeat
from operator import itemgetter
from typing import Final, overload

from msgspec import Struct

from tidegate.errors import EncodeError, RecordTooLargeError
from tidegate.logs.base import Headers, LogRecord, NewRecord, TopicPartition

__all__ = (
    "Columns",
    "Record",
    "Rows",
    "check_headers",
    "check_keys",
    "check_size",
    "only",
    "read_columns",
    "read_headers",
    "record_size",
)

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


class Rows(Sequence[Record]):
    """Records that were read, as columns: whoever handles thousands of them one after the other takes the columns, and
    nothing is made for each. By index, or in a loop, they are Records."""

    __slots__ = ("headers", "keys", "offsets", "timestamps", "values")

    def __init__(
        self,
        keys: list[bytes | None],
        values: list[bytes | None],
        timestamps: list[int],
        headers: list[Headers],
        offsets: list[int] | range,
    ) -> None:
        self.keys, self.values, self.timestamps, self.headers, self.offsets = keys, values, timestamps, headers, offsets

    @classmethod
    def of(cls, records: Iterable[LogRecord]) -> Rows:
        fields = [(record.key, record.value, record.timestamp, record.headers, record.offset) for record in records]
        return cls(*map(list, zip(*fields, strict=True))) if fields else cls([], [], [], [], [])

    def __len__(self) -> int:
        return len(self.keys)

    def __iter__(self) -> Iterator[Record]:
        return map(Record, self.keys, self.values, self.timestamps, self.headers, self.offsets)  # type: ignore[arg-type]

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> Rows: ...
    def __getitem__(self, index: int | slice) -> Record | Rows:
        parts = (self.keys[index], self.values[index], self.timestamps[index], self.headers[index], self.offsets[index])
        return Rows(*parts) if isinstance(index, slice) else Record(*parts)  # type: ignore[arg-type]

    def extend(self, other: Rows) -> None:
        self.keys += other.keys
        self.values += other.values
        self.timestamps += other.timestamps
        self.headers += other.headers
        ours, theirs = self.offsets, other.offsets
        if isinstance(ours, list):
            ours += theirs
        elif isinstance(theirs, range) and theirs.start == ours.stop:
            self.offsets = range(ours.start, theirs.stop)
        else:
            self.offsets = [*ours, *theirs]

    def only(self, wanted: Sequence[bool]) -> Rows:
        """Those that are wanted."""
        columns = (self.keys, self.values, self.timestamps, self.headers, self.offsets)
        return Rows(*(list(compress(column, wanted)) for column in columns))  # type: ignore[arg-type]


def only(records: Sequence[LogRecord], wanted: Sequence[bool]) -> Sequence[LogRecord]:
    """Those of the records that are wanted."""
    return records.only(wanted) if isinstance(records, Rows) else [*compress(records, wanted)]


def read_columns(
    records: Sequence[LogRecord], start: int, end: int
) -> tuple[list[bytes | None], list[bytes | None], list[int]]:
    """Keys, values and timestamps of the records from `start` to `end`."""
    if isinstance(records, Rows):
        return records.keys[start:end], records.values[start:end], records.timestamps[start:end]
    part = records[start:end]
    return [record.key for record in part], [record.value for record in part], [record.timestamp for record in part]


def read_headers(records: Sequence[LogRecord]) -> Sequence[Headers]:
    return records.headers if isinstance(records, Rows) else [record.headers for record in records]


class Columns(Sequence[NewRecord]):
    """New records as columns. Most that are written together have the same headers, and changes of state the same time:
    those are given once."""

    __slots__ = ("each", "headers", "keys", "times", "values")

    def __init__(
        self,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        times: int | Sequence[int],
        headers: Headers = (),
        each: Sequence[Headers] | None = None,
    ) -> None:
        """`times`: one, if it is that of all. `headers`: those of all, unless there is one of `each`."""
        self.keys, self.values, self.times, self.headers, self.each = keys, values, times, headers, each

    @classmethod
    def of(cls, records: Sequence[NewRecord]) -> Columns:
        if isinstance(records, Columns):
            return records
        return cls.sharing(*zip(*records, strict=True)) if records else cls((), (), ())

    @classmethod
    def sharing(
        cls,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        times: Sequence[int],
        headers: Sequence[Headers],
    ) -> Columns:
        """At least one record; headers that all have are kept once."""
        if headers.count(headers[0]) == len(headers):
            return cls(keys, values, times, headers[0])
        return cls(keys, values, times, each=headers)

    def __len__(self) -> int:
        return len(self.keys)

    def __iter__(self) -> Iterator[NewRecord]:
        times = repeat(self.times) if isinstance(self.times, int) else self.times
        headers = repeat(self.headers) if self.each is None else self.each
        return zip(self.keys, self.values, times, headers, strict=False)

    @overload
    def __getitem__(self, index: int) -> NewRecord: ...
    @overload
    def __getitem__(self, index: slice) -> Columns: ...
    def __getitem__(self, index: int | slice) -> NewRecord | Columns:
        if not isinstance(index, slice):
            return next(iter(self[index : index + 1]))
        times, each = self.times, self.each
        return Columns(
            self.keys[index],
            self.values[index],
            times if isinstance(times, int) else times[index],
            self.headers,
            None if each is None else each[index],
        )


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
    keys = records.keys if isinstance(records, Columns) else [*map(_key, records)]
    if not all(keys) and None in keys:  # an empty key is one, too
        raise EncodeError(f"a record for {source} has no key: a compacted topic keeps one record per key")
