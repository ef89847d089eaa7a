"""The embedded log: topics and partitions in one RocksDB, which one process owns."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from rocksdict import Rdict

from tidegate.errors import LogError, PartitionCountError, UnknownTopicError
from tidegate.logs.base import TopicPartition, TopicSpec
from tidegate.logs.embedded.blocks import (
    NEXT_TOPIC_KEY,
    PARTITION_TAGS,
    TopicRow,
    encode_row,
    prefix_end,
    prefix_of,
    topic_key,
)
from tidegate.logs.embedded.database import Changes, close_database, open_database, to_log_error
from tidegate.logs.embedded.group_commit import GroupCommit
from tidegate.logs.embedded.lock import OwnerLock
from tidegate.logs.embedded.maintenance.background import Maintenance
from tidegate.logs.embedded.maintenance.head_trim import trim
from tidegate.logs.embedded.options import EmbeddedOptions
from tidegate.logs.embedded.partition import Partition
from tidegate.logs.embedded.reader import fetch
from tidegate.logs.embedded.recovery import check_format, load_partitions, load_topics
from tidegate.logs.embedded.writer import EmbeddedWriter
from tidegate.logs.local_reader import LocalReader, Wakeups
from tidegate.logs.records import RecordColumns

__all__ = ("EmbeddedLog",)

_Part = TypeVar("_Part")


def _system_clock() -> int:
    return time.time_ns() // 1_000_000


class EmbeddedLog:
    """A Log in a directory. This process owns it while it runs."""

    retention_by_timestamp = False

    def __init__(
        self,
        directory: Path,
        *,
        options: EmbeddedOptions = EmbeddedOptions(),  # noqa: B008 - it is frozen
        clock: Callable[[], int] = _system_clock,
    ) -> None:
        self.directory = directory
        self.options = options
        self.now = clock
        self.partitions: dict[TopicPartition, Partition] = {}
        self._topics: dict[str, TopicRow] = {}
        self._writers: dict[str, EmbeddedWriter] = {}
        self._wakeups = Wakeups()
        self._lock = OwnerLock(directory)
        self._topic_lock = asyncio.Lock()
        self._database: Rdict | None = None
        self._commits: GroupCommit | None = None
        self._maintenance: Maintenance | None = None

    async def start(self) -> None:
        """1. Lock the directory. 2. Open RocksDB, which replays its write-ahead log. 3. Load the topics and their ends.
        4. Start the maintenance: retention and compaction."""
        self._lock.acquire()
        try:
            self._database = await asyncio.to_thread(open_database, self.directory, self.options)
            check_format(self._database, self.directory)
            for name, row in load_topics(self._database).items():
                self._add_topic(name, row)
            self._commits = GroupCommit(self._database, self.directory, self._wakeups)
            self._maintenance = Maintenance(self)
            self._maintenance.start()
        except BaseException as error:
            await self.stop()
            if isinstance(error, Exception) and not isinstance(error, LogError):
                raise to_log_error(error, self.directory) from error
            raise

    async def stop(self) -> None:
        """Completes pending appends first; new ones are refused."""
        maintenance, commits, database = self._maintenance, self._commits, self._database
        self._maintenance = self._commits = self._database = None
        if maintenance is not None:
            await maintenance.stop()
        if commits is not None:
            await commits.close()
        if database is not None:
            await asyncio.to_thread(close_database, database)
        self._lock.release()
        self._topics.clear()
        self.partitions.clear()
        self._writers.clear()
        self._wakeups.wake()

    @property
    def max_record_bytes(self) -> int:
        return self.options.max_record_bytes

    @property
    def syncs(self) -> int:
        """Number of syncs to disk."""
        return self.group_commit.syncs

    @property
    def transactions(self) -> int:
        """Number of committed transactions."""
        return self.group_commit.transactions

    # -- topics -------------------------------------------------------------------------------------------------------

    async def create(self, topics: Iterable[TopicSpec]) -> None:
        """Existing topics get the retention of their spec, since an embedded log has no other way to change it."""
        wanted = list(topics)
        async with self._topic_lock:
            missing = self._missing(wanted)
            await self._update_retention(wanted)
            stored = self.database.get(NEXT_TOPIC_KEY)
            first = 1 if stored is None else int.from_bytes(stored, "big")
            rows = {spec.name: TopicRow.of(topic_id, spec) for topic_id, spec in enumerate(missing.values(), first)}
            if not rows:
                return
            changes = Changes()
            changes.put(NEXT_TOPIC_KEY, (first + len(rows)).to_bytes(4, "big"))
            for name, row in rows.items():
                changes.put(topic_key(name), encode_row(row))
            await self.group_commit.write(changes)
            await self.group_commit.begin_sync()
            for name, row in rows.items():
                self._add_topic(name, row)

    async def delete(self, topics: Iterable[str]) -> None:
        """Holds the append lock: records appended after the removal would never be deleted."""
        async with self._topic_lock, self.group_commit.append_lock:
            deleted = {name: self._topics.pop(name) for name in set(topics) if name in self._topics}
            changes = Changes()
            for name, row in deleted.items():
                self._drop_partitions(name, row)
                changes.delete(topic_key(name))
                for tag in PARTITION_TAGS:
                    prefix = prefix_of(tag, row.topic_id)
                    changes.delete_range(prefix, prefix_end(prefix))
            await self.group_commit.drain()
            await self.group_commit.write(changes)
            await self.group_commit.begin_sync()
        self._wakeups.wake()

    async def topics(self) -> Mapping[str, TopicSpec]:
        return {name: row.spec(name) for name, row in self._topics.items()}

    async def start_offsets(self, sources: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {source: self.partition(source).row.start for source in sources}

    async def end_offsets(self, sources: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {source: self.partition(source).row.end for source in sources}

    async def written_offsets(self, sources: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        return await self.end_offsets(sources)

    async def trim(self, starts: Mapping[TopicPartition, int]) -> None:
        for source, start in starts.items():
            await trim(self.partition(source), start, self.database, self.group_commit, self.maintenance.reclaimer)

    async def clean(self) -> None:
        """Run retention and compaction now, and reclaim the space."""
        await self.maintenance.expire()
        await self.maintenance.clean(force=True)
        await self.maintenance.reclaim(force=True)

    # -- readers and writers ------------------------------------------------------------------------------------------

    def reader(self) -> LocalReader:
        return LocalReader(self, self._wakeups)

    async def writer(self, transactional_id: str | None = None) -> EmbeddedWriter:
        """Records that the fenced writer has written are visible when this returns."""
        writer = EmbeddedWriter(self, transactional_id)
        if transactional_id is not None:
            async with self.group_commit.append_lock:
                self._writers[transactional_id] = writer
            await self.group_commit.drain()
        return writer

    async def publish_positions(self, group: str, positions: Mapping[TopicPartition, int]) -> None:
        """Does nothing: an embedded log has no external tools."""

    def is_fenced(self, writer: EmbeddedWriter) -> bool:
        return writer.transactional_id is not None and self._writers.get(writer.transactional_id) is not writer

    def bounds(self, source: TopicPartition) -> tuple[int, int]:
        """Raises the error that stopped the log: readers would wait forever otherwise."""
        if self.group_commit.error is not None:
            raise self.group_commit.error
        row = self.partition(source).row
        return row.start, row.end

    def fetch(self, source: TopicPartition, position: int, limit: int) -> tuple[RecordColumns, int]:
        partition = self.partition(source)
        database = self.database
        try:
            return fetch(database, partition.block_prefix, position, partition.row.end, limit)
        except Exception as error:
            raise to_log_error(error, self.directory) from error

    # -- parts --------------------------------------------------------------------------------------------------------

    @property
    def group_commit(self) -> GroupCommit:
        return self._require_running(self._commits)

    @property
    def database(self) -> Rdict:
        return self._require_running(self._database)

    @property
    def maintenance(self) -> Maintenance:
        return self._require_running(self._maintenance)

    def partition(self, source: TopicPartition) -> Partition:
        partition = self.partitions.get(source)
        if partition is None:
            self._require_running(self._database)
            raise UnknownTopicError(str(source) if source.topic in self._topics else source.topic, self._topics)
        return partition

    def _require_running(self, part: _Part | None) -> _Part:
        if part is None:
            raise LogError(f"the log in {self.directory} is not running")
        return part

    def _missing(self, topics: Iterable[TopicSpec]) -> dict[str, TopicSpec]:
        missing = {}
        for spec in topics:
            known = self._topics.get(spec.name)
            if known is None:
                missing[spec.name] = spec
            elif known.partitions != spec.partitions:
                raise PartitionCountError(spec.name, known.partitions, spec.partitions)
        return missing

    async def _update_retention(self, wanted: Iterable[TopicSpec]) -> None:
        changes = Changes()
        changed: dict[str, TopicRow] = {}
        for spec in wanted:
            known = self._topics.get(spec.name)
            if known is None or known.compact or spec.compact:
                continue
            if (known.retention_ms, known.retention_bytes) != (spec.retention_ms, spec.retention_bytes):
                updated = replace(
                    known.spec(spec.name), retention_ms=spec.retention_ms, retention_bytes=spec.retention_bytes
                )
                row = changed[spec.name] = TopicRow.of(known.topic_id, updated)
                changes.put(topic_key(spec.name), encode_row(row))
        if not changed:
            return
        await self.group_commit.write(changes)
        await self.group_commit.begin_sync()
        for name, row in changed.items():
            self._topics[name] = row
            for number in range(row.partitions):
                self.partitions[TopicPartition(name, number)].set_retention(row.spec(name), self.now())

    def _add_topic(self, name: str, row: TopicRow) -> None:
        self._topics[name] = row
        for partition in load_partitions(self.database, name, row, self.options):
            self.partitions[partition.source] = partition

    def _drop_partitions(self, name: str, row: TopicRow) -> None:
        for number in range(row.partitions):
            partition = self.partitions.pop(TopicPartition(name, number))
            partition.deleted = True
            self.maintenance.reclaimer.add(partition.block_prefix, partition.row.bytes)
