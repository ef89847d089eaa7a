"""The embedded log: topics and partitions in one RocksDB, and who may write to it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from rocksdict import Rdict, WriteBatch

from tidegate.errors import LogError, PartitionCountError, UnknownTopicError
from tidegate.logs.base import TopicPartition, TopicSpec
from tidegate.logs.embedded.blocks import (
    FORMAT,
    FORMAT_KEY,
    NEXT_TOPIC_KEY,
    PartitionRow,
    TopicRow,
    block_key,
    decode_block,
    decode_partition,
    decode_topic,
    encode_row,
    topic_key,
)
from tidegate.logs.embedded.commit import GroupCommit
from tidegate.logs.embedded.database import open_database, scan
from tidegate.logs.embedded.lock import OwnerLock
from tidegate.logs.embedded.options import EmbeddedOptions
from tidegate.logs.embedded.partition import Partition
from tidegate.logs.embedded.reader import fetch
from tidegate.logs.embedded.writer import EmbeddedWriter
from tidegate.logs.reading import LocalReader, Wakeups
from tidegate.logs.records import Record

__all__ = ("EmbeddedLog",)


def _system_clock() -> int:
    return time.time_ns() // 1_000_000


class EmbeddedLog:
    """A Log in a directory that this process owns."""

    def __init__(
        self,
        directory: Path,
        *,
        options: EmbeddedOptions = EmbeddedOptions(),  # noqa: B008 - frozen
        clock: Callable[[], int] = _system_clock,
    ) -> None:
        self.directory = directory
        self.options = options
        self.now = clock
        self._lock = OwnerLock(directory)
        self._database: Rdict | None = None
        self._commits: GroupCommit | None = None
        self._topics: dict[str, TopicRow] = {}
        self._partitions: dict[TopicPartition, Partition] = {}
        self._writers: dict[str, EmbeddedWriter] = {}
        self._wakeups = Wakeups()

    async def start(self) -> None:
        """1. Lock the directory. 2. Open RocksDB, which replays its own log. 3. Find the topics and their ends."""
        self._lock.acquire()
        try:
            self._database = await asyncio.to_thread(open_database, self.directory, self.options)
            self._commits = GroupCommit(self._database, self.directory, self._wakeups)
            self._load()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        if self._commits is not None:
            await self._commits.close()
            self._commits = None
        if self._database is not None:
            await asyncio.to_thread(self._database.close)
            self._database = None
        self._lock.release()
        self._topics.clear()
        self._partitions.clear()
        self._writers.clear()
        self._wakeups.wake()

    @property
    def commits(self) -> GroupCommit:
        if self._commits is None:
            raise LogError(f"the log in {self.directory} is not running")
        return self._commits

    @property
    def database(self) -> Rdict:
        if self._database is None:
            raise LogError(f"the log in {self.directory} is not running")
        return self._database

    async def create(self, topics: Iterable[TopicSpec]) -> None:
        wanted = list(topics)
        for spec in wanted:
            known = self._topics.get(spec.name)
            if known is not None and known.partitions != spec.partitions:
                raise PartitionCountError(spec.name, known.partitions, spec.partitions)
        batch = WriteBatch(raw_mode=True)
        topic_id = self._next_topic_id()
        added = {}
        for spec in wanted:
            if spec.name in self._topics or spec.name in added:
                continue
            added[spec.name] = row = TopicRow.of(topic_id, spec)
            batch.put(topic_key(spec.name), encode_row(row))
            topic_id += 1
        batch.put(NEXT_TOPIC_KEY, topic_id.to_bytes(4, "big"))
        self.commits.write(batch)
        await asyncio.to_thread(self.commits.sync)
        for name, row in added.items():
            self._add_topic(name, row)

    async def delete(self, topics: Iterable[str]) -> None:
        raise NotImplementedError

    async def topics(self) -> Mapping[str, TopicSpec]:
        return {name: row.spec(name) for name, row in self._topics.items()}

    async def start_offsets(self, sources: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {source: self.partition(source).row.start for source in sources}

    async def end_offsets(self, sources: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {source: self.partition(source).row.end for source in sources}

    def reader(self) -> LocalReader:
        return LocalReader(self, self._wakeups)

    async def writer(self, transactional_id: str | None = None) -> EmbeddedWriter:
        writer = EmbeddedWriter(self, transactional_id)
        if transactional_id is not None:
            self._writers[transactional_id] = writer
            await self.commits.drain()  # what the fenced one has written is seen before its successor reads
        return writer

    # -- what readers and writers call --------------------------------------------------------------------------------

    def partition(self, source: TopicPartition) -> Partition:
        partition = self._partitions.get(source)
        if partition is None:
            raise UnknownTopicError(str(source) if source.topic in self._topics else source.topic, self._topics)
        return partition

    def is_fenced(self, writer: EmbeddedWriter) -> bool:
        return writer.transactional_id is not None and self._writers.get(writer.transactional_id) is not writer

    def bounds(self, source: TopicPartition) -> tuple[int, int]:
        row = self.partition(source).row
        return row.start, row.end

    def fetch(self, source: TopicPartition, position: int, limit: int) -> tuple[Sequence[Record], int]:
        partition = self.partition(source)
        return fetch(self.database, partition.blocks, position, partition.row.end, limit)

    # -- opening ------------------------------------------------------------------------------------------------------

    def _next_topic_id(self) -> int:
        stored = self.database.get(NEXT_TOPIC_KEY)
        return 1 if stored is None else int.from_bytes(stored, "big")

    def _load(self) -> None:
        version = self.database.get(FORMAT_KEY)
        if version is None:
            self.database.put(FORMAT_KEY, FORMAT)
        elif version != FORMAT:
            raise LogError(f"the log in {self.directory} has format {version!r}; this version reads {FORMAT!r}")
        for key, value in scan(self.database, topic_key("")):
            self._add_topic(key[1:].decode(), decode_topic(value))

    def _add_topic(self, name: str, row: TopicRow) -> None:
        self._topics[name] = row
        for number in range(row.partitions):
            source = TopicPartition(name, number)
            self._partitions[source] = partition = Partition(source, row.spec(name), row.topic_id, PartitionRow())
            stored = self.database.get(partition.key)
            if stored is not None:
                partition.row = decode_partition(stored)
            self._recover(partition)

    def _recover(self, partition: Partition) -> None:
        """Find what was written after the row was. RocksDB has made it durable when it was opened."""
        iterator = self.database.iter()
        iterator.seek(block_key(partition.blocks, partition.row.end))
        while iterator.valid() and iterator.key().startswith(partition.blocks):
            block = decode_block(iterator.value())
            partition.row.end = block.records[-1].offset + 2
            iterator.next()
        partition.next = partition.row.end
