"""What the engine needs of a log.

A log holds topics; a topic has partitions; a partition is a sequence of records with growing offsets. Offsets may have
gaps: a transaction burns one offset in each partition that it touches (Kafka's markers do), compaction and retention
remove records. So nobody counts offsets; a reader's *position* says how far it is.

Only committed records are ever read. A transaction's records appear in all its partitions or never; in a log that
lives in one process at the same time and before the append returns, on Kafka in each partition a moment later. Whoever
must see everything that a transactional id has committed opens a writer of that id first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

__all__ = (
    "Batch",
    "Headers",
    "Log",
    "LogRecord",
    "NewRecord",
    "Reader",
    "Records",
    "TopicPartition",
    "TopicSpec",
    "Writer",
)


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]"


Headers = Sequence[tuple[str, bytes]]


class LogRecord(Protocol):
    """A record as it is read. aiokafka's ConsumerRecord is one, too."""

    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Headers: ...


NewRecord = tuple[bytes | None, bytes | None, int, Headers]
"""A record to be written: key, value (None: a tombstone), timestamp in ms, headers. A plain tuple, for speed."""

Records = Mapping[TopicPartition, Sequence[NewRecord]]


class Batch(NamedTuple):
    """Consecutive records of one partition. `position` is where reading goes on: past gaps, not last offset + 1."""

    source: TopicPartition
    records: Sequence[LogRecord]
    position: int


@dataclass(frozen=True, kw_only=True)
class TopicSpec:
    """How a topic is kept."""

    name: str
    partitions: int
    compact: bool = False
    """Keep the last record of each key for ever, instead of all records for a time."""
    retention_ms: int | None = None
    """How long records are kept after they were appended; None: for ever."""
    retention_bytes: int | None = None
    """How much of a partition is kept; None: all."""
    append_time: bool = False
    """The log stamps records when it appends them, instead of keeping the sender's timestamps."""
    tombstone_ms: int = 24 * 3600 * 1000
    """How long a compacted topic keeps tombstones, so that slow readers see them (Kafka's delete.retention.ms)."""
    internal: bool = field(default=False, compare=False)
    """Made by Tidegate for itself: the log takes what it may refuse elsewhere, such as timestamps far ahead of the
    clock. It matters when the topic is created, and is not told again."""


class Reader(Protocol):
    """Reads the partitions that it is told to, each from its position.

    One coroutine reads. While its read waits, others may change what is assigned: what it returns is then of the new
    assignment only."""

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Start, or go on, reading these partitions here. Others that are assigned stay so."""

    def unassign(self, sources: Iterable[TopicPartition]) -> None: ...

    def pause(self, sources: Iterable[TopicPartition]) -> None:
        """Return nothing of these until `resume`."""

    def resume(self, sources: Iterable[TopicPartition]) -> None: ...

    def position(self, source: TopicPartition) -> int:
        """The offset of the next record to be returned; moves past gaps even when there is no record to return."""

    async def read(self, *, max_records: int = 4000, timeout: float = 0.0) -> list[Batch]:
        """What is there now, about `max_records` at most, fair between partitions; else wait up to `timeout` seconds.
        On Kafka what is there is what was fetched so far: reading waits for brokers that are away, and goes on.

        Returns early, with nothing, when all there is to do is to move a position past a gap.
        Raises OffsetOutOfRangeError when a position lies before the log's start or past its end."""

    async def close(self) -> None: ...


class Writer(Protocol):
    """Appends transactions. A writer with a transactional id fences earlier writers with the same id."""

    async def append(
        self, records: Records, then: Callable[[Mapping[TopicPartition, int]], Records] | None = None
    ) -> Mapping[TopicPartition, int]:
        """Append all of it, durably, or nothing. Returns per partition the position after its last record.
        On Kafka it is all or nothing with a transactional id only; without one, what was sent before a failure stays.

        `then` is called with those positions of `records` and returns more for the same transaction, which lets a
        transaction speak of its own offsets. Partitions of `records` and of `then` must be disjoint.

        Raises FencedError; DataError when a record is refused: RecordTooLargeError, RecordRefusedError, EncodeError;
        LogUnavailableError when the brokers did not answer in time: then the outcome is not known. After any error, and
        when it was cancelled, the writer is not used again, only closed."""

    async def close(self) -> None:
        """Quick, also when the log is away."""


class Log(Protocol):
    @property
    def max_record_bytes(self) -> int:
        """A record that is larger, with its key and headers, is refused with RecordTooLargeError."""

    @property
    def ages_by_timestamp(self) -> bool:
        """Whether topics keep records by the records' own time; else it counts when they were appended."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def create(self, topics: Iterable[TopicSpec]) -> None:
        """Create what is missing. PartitionCountError when one exists with another number of partitions."""

    async def delete(self, topics: Iterable[str]) -> None:
        """Remove topics with all that they hold; unknown ones are ignored."""

    async def topics(self) -> Mapping[str, TopicSpec]: ...

    async def start_offsets(self, sources: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The first offset that may still be there. UnknownTopicError for topics that are not."""

    async def end_offsets(self, sources: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The offset after the last committed record and marker: a reader that has reached it has read everything."""

    async def written_offsets(self, sources: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The same with all that is written, whether its transaction has ended or not. Whatever was appended before is
        below: a broker may show it to readers a moment later."""

    async def trim(self, starts: Mapping[TopicPartition, int]) -> None:
        """Remove the records below these offsets: nobody needs them any more. Some may stay for a while."""

    def reader(self) -> Reader: ...

    async def writer(self, transactional_id: str | None = None) -> Writer:
        """With an id: fence the writers before it, and decide what they had under way. Without one nobody is fenced."""

    async def publish_positions(self, group: str, positions: Mapping[TopicPartition, int]) -> None:
        """Tell tools outside how far a group of readers has come, where there are such. Never raises."""
