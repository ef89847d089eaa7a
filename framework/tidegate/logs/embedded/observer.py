"""Observing an embedded log from another process than its owner.

The observer takes no lock and does not disturb the owner: it follows RocksDB's files as a secondary instance. It sees
what the owner has synced, never more, a moment later. It works without an owner, and while an owner starts, stops or is
killed.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from rocksdict import Rdict

from tidegate.errors import LogError, LogUnavailableError, UnknownTopicError
from tidegate.logs.base import Batch, TopicPartition, TopicSpec
from tidegate.logs.embedded.blocks import PartitionRow, TopicRow, decode_partition, prefix_of
from tidegate.logs.embedded.database import close_database, open_secondary, to_log_error
from tidegate.logs.embedded.reader import fetch
from tidegate.logs.embedded.recovery import load_topics
from tidegate.logs.local_reader import LocalReader, Wakeups
from tidegate.logs.observer import Worker
from tidegate.logs.records import RecordColumns

__all__ = ("LogObserver", "PollingReader")

ATTEMPTS: Final = 20
"""Retries when the owner has just replaced the files to be read."""


class LogObserver:
    """Topics, offsets and records of the log in a directory, as they were at the last `refresh`."""

    def __init__(self, directory: Path, *, poll_interval: float = 0.05) -> None:
        self.directory = directory
        self.poll_interval = poll_interval
        self._scratch: Path | None = None
        self._database: Rdict | None = None
        self._topics: dict[str, TopicRow] = {}
        self._rows: dict[TopicPartition, PartitionRow] = {}

    async def start(self) -> None:
        if not (self.directory / "log" / "CURRENT").exists():
            raise LogUnavailableError(f"there is no log in {self.directory} yet: start the worker that owns it first")
        self._scratch = Path(tempfile.mkdtemp(prefix="tidegate-observer-"))
        try:
            await self.refresh()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        self._close()
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
            self._scratch = None

    async def refresh(self, *, reopen: bool = False) -> None:
        """Catch up with the owner."""
        for attempt in range(ATTEMPTS):
            if reopen or attempt > 0:
                self._close()
                await asyncio.sleep(self.poll_interval)
            try:
                self._catch_up()
            except Exception as error:
                failure = error
            else:
                return
        raise failure if isinstance(failure, LogError) else to_log_error(failure, self.directory)

    async def topics(self) -> Mapping[str, TopicSpec]:
        return {name: row.spec(name) for name, row in self._topics.items()}

    async def start_offsets(self, sources: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {source: self.bounds(source)[0] for source in sources}

    async def end_offsets(self, sources: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {source: self.bounds(source)[1] for source in sources}

    async def written_offsets(self, sources: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        return await self.end_offsets(sources)

    def identity(self, topic: str) -> int | None:
        """The topic id: it changes when a topic is deleted and created again, which invalidates offsets."""
        row = self._topics.get(topic)
        return None if row is None else row.topic_id

    def reader(self) -> PollingReader:
        return PollingReader(self)

    async def workers(self, app: str) -> list[Worker]:
        return []

    def bounds(self, source: TopicPartition) -> tuple[int, int]:
        row = self._rows.get(source)
        if row is None:
            raise UnknownTopicError(str(source) if source.topic in self._topics else source.topic, self._topics)
        return row.start, row.end

    def fetch(self, source: TopicPartition, position: int, limit: int) -> tuple[RecordColumns, int]:
        blocks = prefix_of(b"b", self._topics[source.topic].topic_id, source.partition)
        return fetch(self._open(), blocks, position, self._rows[source].end, limit)

    def _catch_up(self) -> None:
        database = self._open()
        before, after = None, self._write_ahead_logs()
        while before != after:
            database.try_catch_up_with_primary()
            before, after = after, self._write_ahead_logs()
        topics = load_topics(database)
        self._rows = {
            TopicPartition(name, number): _row(database, topic.topic_id, number)
            for name, topic in topics.items()
            for number in range(topic.partitions)
        }
        self._topics = topics

    def _write_ahead_logs(self) -> set[str]:
        """A secondary instance first reads the list of tables, then the write-ahead logs. If the owner flushes a log to
        a table in between, the records of that log are missing, but not later ones. So catch up until the logs are the
        same before and after."""
        return {path.name for path in (self.directory / "log").glob("*.log")}

    def _open(self) -> Rdict:
        if self._scratch is None:
            raise LogError(f"the observer of {self.directory} is not running")
        if self._database is None:
            self._database = open_secondary(self.directory, self._scratch)
        return self._database

    def _close(self) -> None:
        if self._database is not None:
            close_database(self._database)
            self._database = None


class PollingReader(LocalReader):
    """A Reader that polls: an observer gets no notification of appends."""

    def __init__(self, observer: LogObserver) -> None:
        super().__init__(observer, Wakeups())
        self._observer = observer

    async def read(self, *, max_records: int = 4000, timeout: float = 0.0) -> list[Batch]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        batches = await self._read_known(max_records)
        while not batches:
            await self._observer.refresh()
            batches = await self._read_known(max_records)
            remaining = deadline - loop.time()
            if remaining <= 0:
                break
            if not batches:
                await asyncio.sleep(min(self._observer.poll_interval, remaining))
        return batches

    async def _read_known(self, max_records: int) -> list[Batch]:
        """Reads up to the ends of the last refresh. Refreshes again if files were replaced since."""
        for _ in range(ATTEMPTS):
            try:
                return await super().read(max_records=max_records)
            except LogError:
                raise
            except Exception as error:
                failure = error
                await self._observer.refresh(reopen=True)
        raise to_log_error(failure, self._observer.directory)


def _row(database: Rdict, topic_id: int, partition: int) -> PartitionRow:
    stored = database.get(prefix_of(b"p", topic_id, partition))
    return PartitionRow() if stored is None else decode_partition(stored)
