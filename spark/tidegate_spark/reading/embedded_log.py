"""The embedded log as a Python data source, batch and stream.

It reads beside a running worker, or without one, through an observer of the log's files: it takes no lock and does not
affect the worker. Partitions are read in parallel, large ones in several parts, as Arrow batches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

from tidegate.errors import LogError, OffsetOutOfRangeError, UnknownTopicError
from tidegate.interop import LogObserver, TopicPartition, observe

try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
except ImportError:  # before PySpark 4.2, which does not support available-now triggers here

    class SupportsTriggerAvailableNow: ...  # type: ignore[no-redef]


__all__ = ("EmbeddedLogSource",)

T = TypeVar("T")

SCHEMA: Final = (
    "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, "
    "headers array<struct<key: string, value: binary>>"
)
_ARROW: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
_TASK: Final = 250_000
"""The offsets of a partition that one Spark task reads."""
_BATCH: Final = 10_000
"""Rows per Arrow batch."""
_LIMIT: Final = "maxOffsetsPerTrigger"


class EmbeddedLogSource(DataSource):  # type: ignore[misc]
    """Options: `path`, the app's directory; `topic`; startingOffsets `earliest` or `latest`; maxOffsetsPerTrigger."""

    @classmethod
    def name(cls) -> str:
        return "tidegate-embedded"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: Any) -> BatchReader:
        return BatchReader(self.options)

    def streamReader(self, schema: Any) -> StreamReader:  # noqa: N802  Spark's name
        return StreamReader(self.options)


@dataclass
class Part(InputPartition):  # type: ignore[misc]
    """A part of a partition: the offsets from `start` (inclusive) to `end` (exclusive)."""

    number: int
    start: int
    end: int


class _PartReader:
    """The common part of both readers: reading one part. It is pickled, so it holds only plain values."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.directory, self.topic = options["path"], options["topic"]
        self.from_end = options.get("startingOffsets", "earliest") == "latest"
        self.limit = int(options.get(_LIMIT, 0))

    def read(self, part: Part) -> Iterator[pa.RecordBatch]:
        source = TopicPartition(self.topic, part.number)
        with _observed(self.directory) as observer:
            position = part.start
            while position < part.end:
                records, position = _retried(observer, source, position)
                rows = [record for record in records if record.offset < part.end]
                for start in range(0, len(rows), _BATCH):
                    yield _batch(self.topic, part.number, rows[start : start + _BATCH])

    def bounds(self, observer: LogObserver) -> list[tuple[int, int, int]]:
        """Per partition: its number, its first offset, and its end offset."""
        topics = _run(observer.topics())
        if self.topic not in topics:
            raise UnknownTopicError(self.topic, topics)
        numbers = range(topics[self.topic].partitions)
        return [(number, *observer.bounds(TopicPartition(self.topic, number))) for number in numbers]


class BatchReader(_PartReader, DataSourceReader):  # type: ignore[misc]
    def partitions(self) -> Sequence[Part]:
        """For no parts, Spark would read a default part: an empty topic has one empty part."""
        with _observed(self.directory) as observer:
            found = [part for number, start, end in self.bounds(observer) for part in _parts(number, start, end)]
        return found or [Part(0, 0, 0)]


class StreamReader(_PartReader, DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """A position is {"topic": name, "identity": id, "0": offset, ...}: the identity detects a recreated topic."""

    _last: Mapping[int, int] | None = None
    """The end offsets of an available-now query, by partition."""

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  Spark's name
        with _observed(self.directory) as observer:
            self._last = {number: end for number, _, end in self.bounds(observer)}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  Spark's name
        with _observed(self.directory) as observer:
            ends = self.from_end
            offsets = {str(number): end if ends else start for number, start, end in self.bounds(observer)}
            return {"topic": self.topic, "identity": observer.identity(self.topic) or 0, **offsets}

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # noqa: N802  Spark's name
        with _observed(self.directory) as observer:
            found = self.bounds(observer)
            self._check(observer, start, found)
            last = {number: end for number, _, end in found} if self._last is None else self._last
        ends = {str(number): max(end, start.get(str(number), 0)) for number, end in last.items()}
        max_rows = getattr(limit, "maxRows", getattr(limit, "max_rows", None))
        if max_rows:
            share = max(1, -(-int(max_rows) // len(ends)))
            ends = {name: min(end, start.get(name, 0) + share) for name, end in ends.items()}
        return {"topic": self.topic, "identity": start["identity"], **ends}

    def getDefaultReadLimit(self) -> Any:  # noqa: N802  Spark's name
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

        return ReadMaxRows(self.limit) if self.limit else ReadAllAvailable()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[Part]:
        numbers = sorted(int(name) for name in end if name.isdecimal())
        found = [part for n in numbers for part in _parts(n, start.get(str(n), 0), end[str(n)])]
        with _observed(self.directory) as observer:
            self._check(observer, start, self.bounds(observer))
        return found

    def _check(self, observer: LogObserver, start: Mapping[str, Any], found: list[tuple[int, int, int]]) -> None:
        """Fail if records that were to be read are gone, as with Kafka's failOnDataLoss."""
        if observer.identity(self.topic) != start["identity"]:
            raise LogError(
                f"topic {self.topic!r} was emptied and recreated since the query's last batch: its offsets refer to "
                f"other records now. Delete the query's checkpoint and its output to read it from the beginning."
            )
        for number, first, end in found:
            position = start.get(str(number), 0)
            if not first <= position <= end:
                raise OffsetOutOfRangeError(self.topic, number, position, first, end)


def _parts(number: int, start: int, end: int) -> list[Part]:
    return [Part(number, at, min(at + _TASK, end)) for at in range(start, end, _TASK)]


def _batch(topic: str, number: int, rows: Sequence[Any]) -> pa.RecordBatch:
    columns = [
        pa.array([row.key for row in rows], pa.binary()),
        pa.array([row.value for row in rows], pa.binary()),
        pa.repeat(topic, len(rows)),
        pa.repeat(pa.scalar(number, pa.int32()), len(rows)),
        pa.array([row.offset for row in rows], pa.int64()),
        pa.array([row.timestamp for row in rows], pa.int64()).cast(pa.timestamp("ms")).cast(_ARROW.field(5).type),
        _headers(rows),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_ARROW)


def _headers(rows: Sequence[Any]) -> pa.Array:
    """Built from flat lists, which is several times faster than from a list of structs."""
    offsets, names, contents = [0], list[str](), list[bytes]()
    for row in rows:
        for name, content in row.headers:
            names.append(name)
            contents.append(content)
        offsets.append(len(names))
    struct = _ARROW.field(6).type.value_type
    pairs = pa.StructArray.from_arrays(
        [pa.array(names, pa.string()), pa.array(contents, pa.binary())], fields=[struct.field(0), struct.field(1)]
    )
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pairs, type=_ARROW.field(6).type)


# ---------------------------------------------------------------------------------------------------------- observing


@contextmanager
def _observed(directory: str) -> Iterator[LogObserver]:
    observer = observe(Path(directory))
    _run(observer.start())
    try:
        yield observer
    finally:
        _run(observer.stop())


def _retried(observer: LogObserver, source: TopicPartition, position: int) -> tuple[Sequence[Any], int]:
    """The owner may replace files during a read, by compaction: reopen and retry once."""
    try:
        return observer.fetch(source, position, _BATCH)
    except Exception:
        _run(observer.refresh(reopen=True))
        return observer.fetch(source, position, _BATCH)


def _run(awaited: Coroutine[Any, Any, T]) -> T:
    """Spark's Python processes have no event loop of their own."""
    return asyncio.run(awaited)
