"""Records in memory, single and as columns, and the checks of a record before it is appended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import compress, repeat
from operator import itemgetter
from typing import Final, overload

from msgspec import Struct

from tidegate.errors import EncodeError, RecordTooLargeError
from tidegate.logs.base import Headers, LogRecord, NewRecord, TopicPartition

__all__ = (
    "NewRecordColumns",
    "Record",
    "RecordColumns",
    "check_headers",
    "check_keys",
    "check_size",
    "read_columns",
    "read_headers",
    "record_size",
    "select",
)

_key: Final = itemgetter(0)
OVERHEAD = 40
"""The most bytes that a record needs besides key, value and headers: for offset, timestamp and lengths."""


class Record(Struct, array_like=True, gc=False):
    """A LogRecord. Its fields contain bytes and numbers only, so the garbage collector need not track it: 2 × faster.

    The fields are in the order of a NewRecord, so that such a tuple is stored as it is and read as a Record."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[tuple[str, bytes], ...] = ()
    offset: int = 0


class RecordColumns(Sequence[Record]):
    """Records that were read, as columns: the hot loop iterates over the columns and creates no object per record.
    Indexing and iteration give Records."""

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
    def of(cls, records: Iterable[LogRecord]) -> RecordColumns:
        fields = [(record.key, record.value, record.timestamp, record.headers, record.offset) for record in records]
        return cls(*map(list, zip(*fields, strict=True))) if fields else cls([], [], [], [], [])

    def __len__(self) -> int:
        return len(self.keys)

    def __iter__(self) -> Iterator[Record]:
        return map(Record, self.keys, self.values, self.timestamps, self.headers, self.offsets)  # type: ignore[arg-type]

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> RecordColumns: ...
    def __getitem__(self, index: int | slice) -> Record | RecordColumns:
        parts = (self.keys[index], self.values[index], self.timestamps[index], self.headers[index], self.offsets[index])
        return RecordColumns(*parts) if isinstance(index, slice) else Record(*parts)  # type: ignore[arg-type]

    def extend(self, other: RecordColumns) -> None:
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

    def select(self, selectors: Sequence[bool]) -> RecordColumns:
        columns = (self.keys, self.values, self.timestamps, self.headers, self.offsets)
        return RecordColumns(*(list(compress(column, selectors)) for column in columns))  # type: ignore[arg-type]


def select(records: Sequence[LogRecord], selectors: Sequence[bool]) -> Sequence[LogRecord]:
    """The records whose selector is true."""
    return records.select(selectors) if isinstance(records, RecordColumns) else [*compress(records, selectors)]


def read_columns(
    records: Sequence[LogRecord], start: int, end: int
) -> tuple[list[bytes | None], list[bytes | None], list[int]]:
    """Keys, values and timestamps of the records from `start` to `end`."""
    if isinstance(records, RecordColumns):
        return records.keys[start:end], records.values[start:end], records.timestamps[start:end]
    part = records[start:end]
    return [record.key for record in part], [record.value for record in part], [record.timestamp for record in part]


def read_headers(records: Sequence[LogRecord]) -> Sequence[Headers]:
    return records.headers if isinstance(records, RecordColumns) else [record.headers for record in records]


class NewRecordColumns(Sequence[NewRecord]):
    """New records as columns. Records of one append usually share their headers, and state changes their timestamp:
    a shared value is stored once."""

    __slots__ = ("each", "headers", "keys", "times", "values")

    def __init__(
        self,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        times: int | Sequence[int],
        headers: Headers = (),
        each: Sequence[Headers] | None = None,
    ) -> None:
        """`times`: an int is the timestamp of all records. `headers`: of all records, unless `each` has them per
        record."""
        self.keys, self.values, self.times, self.headers, self.each = keys, values, times, headers, each

    @classmethod
    def of(cls, records: Sequence[NewRecord]) -> NewRecordColumns:
        if isinstance(records, NewRecordColumns):
            return records
        return cls.sharing(*zip(*records, strict=True)) if records else cls((), (), ())

    @classmethod
    def sharing(
        cls,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        times: Sequence[int],
        headers: Sequence[Headers],
    ) -> NewRecordColumns:
        """Of at least one record. Equal headers are stored once."""
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
    def __getitem__(self, index: slice) -> NewRecordColumns: ...
    def __getitem__(self, index: int | slice) -> NewRecord | NewRecordColumns:
        if not isinstance(index, slice):
            return next(iter(self[index : index + 1]))
        times, each = self.times, self.each
        return NewRecordColumns(
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
    """EncodeError: a header is not a pair of a name and bytes."""
    untrusted: Sequence[object] = headers
    for header in untrusted:
        if not isinstance(header, tuple) or [*map(type, header)] != [str, bytes]:
            raise EncodeError(f"{header!r} cannot be a header: a header is a pair of a name and bytes")


def check_keys(source: TopicPartition, records: Sequence[NewRecord]) -> None:
    """EncodeError: a record for a compacted topic has no key."""
    keys = records.keys if isinstance(records, NewRecordColumns) else [*map(_key, records)]
    if not all(keys) and None in keys:  # an empty key is a key
        raise EncodeError(f"a record for {source} has no key: a compacted topic keeps one record per key")
