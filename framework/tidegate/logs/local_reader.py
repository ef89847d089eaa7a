"""The reader of logs in this process: positions, fairness, waiting. Each log implements `Fetcher` for it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from tidegate.errors import OffsetOutOfRangeError
from tidegate.logs.base import Batch, LogRecord, TopicPartition

__all__ = ("Fetcher", "LocalReader", "Wakeups")


class Fetcher(Protocol):
    """The source of a LocalReader's records. Its methods return immediately."""

    def bounds(self, source: TopicPartition) -> tuple[int, int]:
        """The start and the end offset. UnknownTopicError: there is no such partition."""

    def fetch(self, source: TopicPartition, position: int, limit: int) -> tuple[Sequence[LogRecord], int]:
        """Committed records from `position` on, `limit` or a few more, and the position after them."""


class Wakeups:
    """Readers that wait for an append."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[None]] = set()

    def wake(self) -> None:
        for future in self._waiting:
            if not future.done():
                future.set_result(None)
        self._waiting.clear()

    async def wait(self, timeout: float) -> None:
        """Wait until `wake` is called, `timeout` seconds at most."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            await asyncio.wait((future,), timeout=timeout)
        finally:
            self._waiting.discard(future)


class LocalReader:
    """A Reader over a Fetcher."""

    def __init__(self, fetcher: Fetcher, wakeups: Wakeups) -> None:
        self._fetcher = fetcher
        self._wakeups = wakeups
        self._positions: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        self._overflow: dict[TopicPartition, tuple[Sequence[LogRecord], int]] = {}
        """Records fetched beyond the limit of a read, for the next read."""
        self._skipped = False
        """A position has advanced past a gap. `read` returns then, since its caller may wait for the position."""

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        for source, position in positions.items():
            self._overflow.pop(source, None)
            self._positions[source] = position

    def unassign(self, sources: Iterable[TopicPartition]) -> None:
        for source in sources:
            self._positions.pop(source, None)
            self._overflow.pop(source, None)
            self._paused.discard(source)

    def pause(self, sources: Iterable[TopicPartition]) -> None:
        self._paused.update(sources)

    def resume(self, sources: Iterable[TopicPartition]) -> None:
        self._paused.difference_update(sources)
        self._wakeups.wake()

    def position(self, source: TopicPartition) -> int:
        return self._positions[source]

    async def read(self, *, max_records: int = 4000, timeout: float = 0.0) -> list[Batch]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while True:
            self._skipped = False
            batches = self._read_now(max_records)
            remaining = deadline - loop.time()
            if batches or self._skipped or remaining <= 0:
                return batches
            await self._wakeups.wait(remaining)

    async def close(self) -> None:
        self._positions.clear()
        self._overflow.clear()
        self._paused.clear()

    def _read_now(self, max_records: int) -> list[Batch]:
        """Divides `max_records` equally among the partitions that have records."""
        ready = self._ready()
        batches: list[Batch] = []
        for served, source in enumerate(ready):
            share = -(-max_records // (len(ready) - served))
            if share <= 0:
                break
            try:
                batch = self._take(source, share)
            except Exception:
                if batches:
                    break  # return the records taken so far: the next read raises the error again
                raise
            if batch.records:
                batches.append(batch)
                max_records -= len(batch.records)
                self._move_to_back(source)
            else:
                self._skipped = True
        return batches

    def _ready(self) -> list[TopicPartition]:
        ready = []
        for source, position in self._positions.items():
            if source in self._paused:
                continue
            start, end = self._fetcher.bounds(source)
            if not start <= position <= end:
                raise OffsetOutOfRangeError(source.topic, source.partition, position, start, end)
            if position < end:
                ready.append(source)
        return ready

    def _take(self, source: TopicPartition, limit: int) -> Batch:
        """Advances the position past the returned records, and past gaps even when there are none."""
        overflow = self._overflow.pop(source) if source in self._overflow else None
        records, position = overflow or self._fetcher.fetch(source, self._positions[source], limit)
        if len(records) > limit:
            self._overflow[source] = records[limit:], position
            position = records[limit].offset
            records = records[:limit]
        self._positions[source] = position
        return Batch(source, records, position)

    def _move_to_back(self, source: TopicPartition) -> None:
        """Round robin: the next read serves this partition last."""
        self._positions[source] = self._positions.pop(source)
