"""The logs that the contract suites run on, and a few words to speak to them with."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Protocol

from tidegate.logs.base import Log, LogRecord, NewRecord, Reader, TopicPartition
from tidegate.logs.embedded import EmbeddedLog, EmbeddedOptions
from tidegate.logs.kafka import KafkaLog
from tidegate.logs.kafka.record_batches import BATCH_OVERHEAD
from tidegate.settings import KafkaSettings
from tidegate.testing.memory_log import MemoryLog

__all__ = (
    "LOCAL_LOGS",
    "MAX_RECORD_BYTES",
    "RUN",
    "LocalLog",
    "ManualClock",
    "Readable",
    "kafka_log",
    "new",
    "read_all",
    "until_ends",
    "values",
)

MAX_RECORD_BYTES = 100_000
RUN = uuid.uuid4().hex[:8]
"""Part of the names of topics and transactional ids: a broker may serve several runs."""
LocalLog = MemoryLog | EmbeddedLog


class ManualClock:
    """Milliseconds that pass only when a test says so."""

    def __init__(self, now: int = 1_700_000_000_000) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now

    def advance(self, milliseconds: int) -> None:
        self.now += milliseconds


@asynccontextmanager
async def memory_log(directory: Path, clock: Callable[[], int]) -> AsyncIterator[MemoryLog]:
    log = MemoryLog(clock=clock, max_record_bytes=MAX_RECORD_BYTES)
    await log.start()
    yield log
    await log.stop()


@asynccontextmanager
async def embedded_log(directory: Path, clock: Callable[[], int]) -> AsyncIterator[EmbeddedLog]:
    """With blocks of a few records only, so that every test crosses from one to another."""
    options = EmbeddedOptions(max_record_bytes=MAX_RECORD_BYTES, block_records=4, block_bytes=2000)
    log = EmbeddedLog(directory, options=options, clock=clock)
    await log.start()
    yield log
    await log.stop()


@asynccontextmanager
async def kafka_log(broker: str) -> AsyncIterator[KafkaLog]:
    log = KafkaLog(broker, KafkaSettings(kafka_max_request_bytes=MAX_RECORD_BYTES + BATCH_OVERHEAD))
    await log.start()
    try:
        yield log
    finally:
        await log.stop()


LOCAL_LOGS: dict[str, Callable[[Path, Callable[[], int]], AbstractAsyncContextManager[LocalLog]]] = {
    "memory": memory_log,
    "embedded": embedded_log,
}


def new(*values: bytes | None, key: bytes | None = b"k", timestamp: int = 7) -> list[NewRecord]:
    """Records to be appended, one for each value."""
    return [(key, value, timestamp, ()) for value in values]


def values(records: Iterable[LogRecord]) -> list[bytes | None]:
    return [record.value for record in records]


class Readable(Protocol):
    """What can be read to its end: a log, or an observer of one."""

    async def start_offsets(self, sources: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]: ...
    async def end_offsets(self, sources: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]: ...
    def reader(self) -> Reader: ...


async def until_ends(log: Log, expected: Mapping[TopicPartition, int]) -> None:
    """Wait until the ends are these: Kafka shows a transaction a moment after it was committed."""
    seen: Mapping[TopicPartition, int] = {}
    for _ in range(500):
        seen = await log.end_offsets(expected)
        if seen == expected:
            return
        await asyncio.sleep(0.01)
    assert seen == expected


async def read_all(log: Readable, source: TopicPartition, position: int | None = None) -> Sequence[LogRecord]:
    """Everything from a position, or from the start, to the end that is known now."""
    reader = log.reader()
    start = (await log.start_offsets([source]))[source] if position is None else position
    end = (await log.end_offsets([source]))[source]
    reader.assign({source: start})
    records: list[LogRecord] = []
    while reader.position(source) < end:
        for batch in await reader.read(timeout=5):
            records += batch.records
    await reader.close()
    return records
