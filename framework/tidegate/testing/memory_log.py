"""A log in memory, for tests: it fulfils the contract of the durable logs and needs no setup."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tidegate.errors import FencedError, PartitionCountError, UnknownTopicError, UsageError
from tidegate.logs.base import NewRecord, Records, TopicPartition, TopicSpec
from tidegate.logs.local_reader import LocalReader, Wakeups
from tidegate.logs.records import Record, check_keys, check_size

__all__ = ("MemoryLog", "MemoryWriter")

Positions = Mapping[TopicPartition, int]


@dataclass
class _Partition:
    spec: TopicSpec
    records: list[Record] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    appended: list[int] = field(default_factory=list)
    """The time of the append; after the first compaction of a record, the time of that."""
    clean_to: int = 0
    start: int = 0
    end: int = 0

    def keep(self, kept: Sequence[int]) -> None:
        """Keep the records at these indices, drop the others."""
        self.records = [self.records[index] for index in kept]
        self.offsets = [self.offsets[index] for index in kept]
        self.appended = [self.appended[index] for index in kept]


class MemoryLog:
    """A Log in memory. Retention and compaction happen when `clean` is called, and only then."""

    retention_by_timestamp = False

    def __init__(
        self, *, clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000, max_record_bytes: int = 8 << 20
    ) -> None:
        self._clock = clock
        self.max_record_bytes = max_record_bytes
        self._topics: dict[str, TopicSpec] = {}
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._writers: dict[str, MemoryWriter] = {}
        self._wakeups = Wakeups()

    async def start(self) -> None:
        """Nothing to open: records from before a `stop` are still there."""

    async def stop(self) -> None:
        self._writers.clear()
        self._wakeups.wake()

    async def create(self, topics: Iterable[TopicSpec]) -> None:
        wanted = list(topics)
        for spec in wanted:
            known = self._topics.get(spec.name)
            if known is not None and known.partitions != spec.partitions:
                raise PartitionCountError(spec.name, known.partitions, spec.partitions)
        for spec in wanted:
            if spec.name not in self._topics:
                self._topics[spec.name] = spec
                for number in range(spec.partitions):
                    self._partitions[TopicPartition(spec.name, number)] = _Partition(spec)

    async def delete(self, topics: Iterable[str]) -> None:
        for name in topics:
            spec = self._topics.pop(name, None)
            for number in range(spec.partitions if spec else 0):
                del self._partitions[TopicPartition(name, number)]
        self._wakeups.wake()

    async def topics(self) -> Mapping[str, TopicSpec]:
        return dict(self._topics)

    async def start_offsets(self, sources: Iterable[TopicPartition]) -> Positions:
        return {source: self.bounds(source)[0] for source in sources}

    async def end_offsets(self, sources: Iterable[TopicPartition]) -> Positions:
        return {source: self.bounds(source)[1] for source in sources}

    async def written_offsets(self, sources: Iterable[TopicPartition]) -> Positions:
        return await self.end_offsets(sources)

    async def trim(self, starts: Mapping[TopicPartition, int]) -> None:
        for source, start in starts.items():
            partition = self._partition(source)
            first = bisect_left(partition.offsets, start)
            partition.start = max(partition.start, min(start, partition.end))
            partition.keep(range(first, len(partition.records)))

    def reader(self) -> LocalReader:
        return LocalReader(self, self._wakeups)

    async def writer(self, transactional_id: str | None = None) -> MemoryWriter:
        writer = MemoryWriter(self, transactional_id)
        if transactional_id is not None:
            self._writers[transactional_id] = writer
        return writer

    async def publish_positions(self, group: str, positions: Positions) -> None:
        """Nothing reads published positions of a log in memory."""

    async def clean(self) -> None:
        """Apply retention and compaction now."""
        now = self._clock()
        for partition in self._partitions.values():
            if partition.spec.compact:
                self._compact(partition, now)
            else:
                self._expire(partition, now)

    # -- what readers and writers call --------------------------------------------------------------------------------

    def bounds(self, source: TopicPartition) -> tuple[int, int]:
        partition = self._partition(source)
        return partition.start, partition.end

    def fetch(self, source: TopicPartition, position: int, limit: int) -> tuple[Sequence[Record], int]:
        partition = self._partition(source)
        first = bisect_left(partition.offsets, position)
        records = partition.records[first : first + limit]
        more = first + limit < len(partition.offsets)
        return records, partition.offsets[first + limit] if more else partition.end

    def is_fenced(self, writer: MemoryWriter) -> bool:
        return writer.transactional_id is not None and self._writers.get(writer.transactional_id) is not writer

    def positions_after(self, records: Records) -> dict[TopicPartition, int]:
        """Check the records, and return the positions after them."""
        for source, new in records.items():
            if self._partition(source).spec.compact:
                check_keys(source, new)
            for record in new:
                check_size(source.topic, record, self.max_record_bytes)
        return {source: self._partition(source).end + len(new) for source, new in records.items()}

    def append(self, records: Records) -> None:
        now = self._clock()
        for source, new in records.items():
            if new:
                self._append(self._partition(source), new, now)
        self._wakeups.wake()

    def _partition(self, source: TopicPartition) -> _Partition:
        partition = self._partitions.get(source)
        if partition is None:
            raise UnknownTopicError(str(source) if source.topic in self._topics else source.topic, self._topics)
        return partition

    def _append(self, partition: _Partition, new: Sequence[NewRecord], now: int) -> None:
        for offset, (key, value, timestamp, headers) in enumerate(new, partition.end):
            stamp = now if partition.spec.append_time else timestamp
            partition.records.append(Record(key, value, stamp, tuple(headers), offset))
            partition.offsets.append(offset)
            partition.appended.append(now)
        partition.end += len(new) + 1  # one offset is skipped, as by a transaction marker

    def _compact(self, partition: _Partition, now: int) -> None:
        """A tombstone's retention starts at its first compaction: before that, readers may see the removed value."""
        last = {record.key: index for index, record in enumerate(partition.records)}
        for index in range(bisect_left(partition.offsets, partition.clean_to), len(partition.records)):
            partition.appended[index] = now
        partition.clean_to = partition.end
        oldest = now - partition.spec.tombstone_ms
        partition.keep(
            [
                index
                for index in sorted(last.values())
                if partition.records[index].value is not None or partition.appended[index] > oldest
            ]
        )

    def _expire(self, partition: _Partition, now: int) -> None:
        spec = partition.spec
        oldest = now - spec.retention_ms if spec.retention_ms is not None else 0
        room = spec.retention_bytes
        first = len(partition.records)
        while first > 0 and partition.appended[first - 1] > oldest:
            if room is not None:
                record = partition.records[first - 1]
                room -= len(record.key or b"") + len(record.value or b"")
                if room < 0:
                    break
            first -= 1
        if first > 0:
            partition.start = partition.offsets[first] if first < len(partition.offsets) else partition.end
            partition.keep(range(first, len(partition.records)))


class MemoryWriter:
    """A Writer into a MemoryLog."""

    def __init__(self, log: MemoryLog, transactional_id: str | None) -> None:
        self.transactional_id = transactional_id
        self._log = log

    async def append(self, records: Records, then: Callable[[Positions], Records] | None = None) -> Positions:
        if self._log.is_fenced(self):
            raise FencedError(self.transactional_id or "")
        positions = self._log.positions_after(records)
        more = then(dict(positions)) if then is not None else {}
        for source in more.keys() & positions.keys():
            raise UsageError(f"both parts of a transaction write to {source}: they must be disjoint")
        positions |= self._log.positions_after(more)
        self._log.append({**records, **more})
        return positions

    async def close(self) -> None:
        """There is nothing to release."""
