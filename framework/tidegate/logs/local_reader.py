"""Reading from a log that lives in this process: positions, fairness and waiting.

What differs between such logs is how they fetch: each implements `Fetcher`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from tidegate.errors import OffsetOutOfRangeError
from tidegate.logs.base import Batch, LogRecord, TopicPartition

__all__ = ("Fetcher", "LocalReader", "Wakeups")


class Fetcher(Protocol):
    """Where a LocalReader gets its records from. Everything here answers at once."""

    def bounds(self, source: TopicPartition) -> tuple[int, int]:
        """The start and the end offset. UnknownTopicError when there is no such partition."""

    def fetch(self, source: TopicPartition, position: int, limit: int) -> tuple[Sequence[LogRecord], int]:
        """Committed records from `position` on, `limit` or a few more, and the position after them."""


class Wakeups:
    """Whom to wake when something was appended."""

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
        self._surplus: dict[TopicPartition, tuple[Sequence[LogRecord], int]] = {}
        """Fetched, but over the limit of the read that fetched it: the next read begins with it."""
        self._skipped = False
        """A position has moved past a gap: whoever waits for it to reach an end must know."""

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        for source, position in positions.items():
            self._surplus.pop(source, None)
            self._positions[source] = position

    def unassign(self, sources: Iterable[TopicPartition]) -> None:
        for source in sources:
            self._positions.pop(source, None)
            self._surplus.pop(source, None)
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
        self._surplus.clear()
        self._paused.clear()

    def _read_now(self, max_records: int) -> list[Batch]:
        """Give each partition that has something an equal share of what is left to give."""
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
                    break  # what was taken already must not be lost: the error comes again
                raise
            if batch.records:
                batches.append(batch)
                max_records -= len(batch.records)
                self._to_the_back(source)
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
        """Move the position past what is returned, and past gaps even when nothing is."""
        surplus = self._surplus.pop(source) if source in self._surplus else None
        records, position = surplus or self._fetcher.fetch(source, self._positions[source], limit)
        if len(records) > limit:
            self._surplus[source] = records[limit:], position
            position = records[limit].offset
            records = records[:limit]
        self._positions[source] = position
        return Batch(source, records, position)

    def _to_the_back(self, source: TopicPartition) -> None:
        """Who was served is asked last the next time."""
        self._positions[source] = self._positions.pop(source)
