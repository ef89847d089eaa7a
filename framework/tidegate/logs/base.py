"""The engine's contract with a log.

A log has topics; a topic has partitions; a partition is a sequence of records with increasing offsets. Offsets have
gaps: a transaction uses up one offset in each of its partitions (on Kafka for the marker), compaction and retention
remove records. So offsets cannot be counted; a reader's *position* says how far it has read.

Readers see committed records only. A transaction's records appear in all its partitions or in none: in a log in this
process atomically and before the append returns, on Kafka in each partition a moment later. A reader that must see
everything that a transactional id has committed opens a writer with that id first.
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
    """A record as it is read. aiokafka's ConsumerRecord satisfies it, too."""

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
    """Consecutive records of one partition. `position` is where reading continues: past gaps, so not always the last
    offset + 1."""

    source: TopicPartition
    records: Sequence[LogRecord]
    position: int


@dataclass(frozen=True, kw_only=True)
class TopicSpec:
    """The configuration of a topic."""

    name: str
    partitions: int
    compact: bool = False
    """Keep the last record of each key, instead of all records for the time of the retention."""
    retention_ms: int | None = None
    """How long records are kept after they were appended; None: without limit."""
    retention_bytes: int | None = None
    """How many bytes of a partition are kept; None: all."""
    append_time: bool = False
    """The log sets the timestamps when it appends records, instead of keeping the sender's."""
    tombstone_ms: int = 24 * 3600 * 1000
    """How long a compacted topic keeps tombstones, so that slow readers see them (Kafka's delete.retention.ms)."""
    internal: bool = field(default=False, compare=False)
    """A topic of Tidegate's own: it accepts records that other topics may refuse, such as timestamps far ahead of the
    clock. Used when the topic is created; a log does not return it."""


class Reader(Protocol):
    """Reads its assigned partitions, each from its position.

    One coroutine reads. Others may change the assignment while a read waits: the read then returns records of the new
    assignment only."""

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read these partitions from these positions on. Other assigned partitions stay assigned."""

    def unassign(self, sources: Iterable[TopicPartition]) -> None: ...

    def pause(self, sources: Iterable[TopicPartition]) -> None:
        """Return no records of these until `resume`."""

    def resume(self, sources: Iterable[TopicPartition]) -> None: ...

    def position(self, source: TopicPartition) -> int:
        """The offset of the next record to return; advances past gaps even when there is no record to return."""

    async def read(self, *, max_records: int = 4000, timeout: float = 0.0) -> list[Batch]:
        """The available records, about `max_records` at most, fair between partitions; if there are none, wait up to
        `timeout` seconds. On Kafka these are the records fetched so far; while a broker is unreachable, reading stalls.

        Returns early and empty when a position has advanced past a gap.
        Raises OffsetOutOfRangeError when a position is before the partition's start or past its end."""

    async def close(self) -> None: ...


class Writer(Protocol):
    """Appends transactions. A writer with a transactional id fences earlier writers with the same id."""

    async def append(
        self, records: Records, then: Callable[[Mapping[TopicPartition, int]], Records] | None = None
    ) -> Mapping[TopicPartition, int]:
        """Append all records durably, or none. Returns by partition the position after its last record.
        On Kafka this is atomic with a transactional id only; without one, batches acknowledged before a failure stay.

        `then` is called with the positions of `records` and returns more records for the same transaction, so that a
        transaction can contain its own offsets. The partitions of `records` and of `then` must be disjoint.

        Raises FencedError; DataError when a record is refused: RecordTooLargeError, RecordRefusedError, EncodeError;
        LogUnavailableError when the brokers did not answer in time: then the outcome is unknown. After any error, and
        after a cancellation, the writer can only be closed."""

    async def close(self) -> None:
        """Returns quickly, also when the log is unreachable."""


class Log(Protocol):
    @property
    def max_record_bytes(self) -> int:
        """A larger record, including its key and headers, is refused with RecordTooLargeError."""

    @property
    def retention_by_timestamp(self) -> bool:
        """Whether the age of a record counts from its timestamp; else from when it was appended."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def create(self, topics: Iterable[TopicSpec]) -> None:
        """Create the missing ones. PartitionCountError: a topic exists with another number of partitions."""

    async def delete(self, topics: Iterable[str]) -> None:
        """Delete topics with their records; unknown topics are ignored."""

    async def topics(self) -> Mapping[str, TopicSpec]: ...

    async def start_offsets(self, sources: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The log start offsets: records below are deleted. UnknownTopicError: there is no such topic."""

    async def end_offsets(self, sources: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The last stable offsets: a reader at this position has read every committed record."""

    async def written_offsets(self, sources: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The high watermarks, open transactions included. Records of every append that has returned are below, also
        those that a broker shows to readers a moment later."""

    async def trim(self, starts: Mapping[TopicPartition, int]) -> None:
        """Delete the records below these offsets. Some may stay for a while."""

    def reader(self) -> Reader: ...

    async def writer(self, transactional_id: str | None = None) -> Writer:
        """With an id: fence earlier writers with that id, and end their open transactions. Without: no fencing."""

    async def publish_positions(self, group: str, positions: Mapping[TopicPartition, int]) -> None:
        """Publish the positions of a group for external tools that watch lag, if the log has such. Never raises."""
