"""The reader of a Kafka log: assigned partitions, positions, fair shares of the fetched records."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from aiokafka import errors

from tidegate.errors import LogError, OffsetOutOfRangeError
from tidegate.logs.base import Batch, TopicPartition
from tidegate.logs.kafka.connection.broker_errors import to_log_error
from tidegate.logs.kafka.connection.cluster import EARLIEST, LATEST, Cluster
from tidegate.logs.kafka.fetcher import Fetcher, Stream

__all__ = ("KafkaReader",)


class KafkaReader:
    """A Reader of a Kafka cluster.

    Assigning or unassigning a partition does not affect the others. A paused partition keeps its fetched records.
    While a broker is unreachable, reading of its partitions stalls; it resumes by itself."""

    def __init__(self, cluster: Cluster, number: int, closed: Callable[[KafkaReader], None]) -> None:
        """`number` separates its connections from those of other readers; `closed` is called when it closes."""
        self._cluster, self._closed = cluster, closed
        self._streams: dict[TopicPartition, Stream] = {}
        """In the order of the round robin."""
        self._fetcher = Fetcher(cluster, number, self._streams)
        self._skipped = False
        """A position has advanced past a gap. `read` returns then, since its caller may wait for the position."""

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        for source, position in positions.items():
            known = self._streams.get(source)
            stream = self._streams[source] = Stream(source, position)  # responses for the old one are dropped
            stream.paused = known is not None and known.paused
        self._fetcher.wake()

    def unassign(self, sources: Iterable[TopicPartition]) -> None:
        for source in sources:
            self._streams.pop(source, None)

    def pause(self, sources: Iterable[TopicPartition]) -> None:
        for source in sources:
            if source in self._streams:
                self._streams[source].paused = True

    def resume(self, sources: Iterable[TopicPartition]) -> None:
        for source in sources:
            if source in self._streams:
                self._streams[source].paused = False
        self._fetcher.wake()

    def position(self, source: TopicPartition) -> int:
        return self._streams[source].position

    async def read(self, *, max_records: int = 4000, timeout: float = 0.0) -> list[Batch]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while True:
            self._skipped = False
            await self._raise_failures()
            batches = self._take(max_records)
            self._fetcher.fetch()
            remaining = deadline - loop.time()
            if batches or self._skipped or remaining <= 0:
                return batches
            await self._fetcher.wait(remaining)

    async def close(self) -> None:
        self._streams.clear()
        await self._fetcher.close()
        self._closed(self)

    def _take(self, max_records: int) -> list[Batch]:
        """Divides `max_records` equally among the partitions that have records."""
        ready = [stream for stream in self._streams.values() if stream.ready and not stream.paused]
        batches: list[Batch] = []
        for served, stream in enumerate(ready):
            share = -(-max_records // (len(ready) - served))
            if share <= 0:
                break
            records = stream.take(share)
            if records:
                batches.append(Batch(stream.source, records, stream.position))
                max_records -= len(records)
                self._streams[stream.source] = self._streams.pop(stream.source)  # to the back of the round robin
            else:
                self._skipped = True
        return batches

    async def _raise_failures(self) -> None:
        """Raises errors of brokers and of damaged data, on every read until the position changes."""
        if self._fetcher.failure is not None:
            raise self._fetcher.failure
        for source, stream in self._streams.items():
            failure = stream.failure
            if failure is None or stream.paused or stream.ready:
                continue
            if isinstance(failure, errors.OffsetOutOfRangeError):
                start = (await self._cluster.offsets([source], EARLIEST))[source]
                end = (await self._cluster.offsets([source], LATEST))[source]
                raise OffsetOutOfRangeError(source.topic, source.partition, stream.position, start, end)
            if isinstance(failure, errors.KafkaError):
                raise to_log_error(failure, f"reading {source}") from failure
            if isinstance(failure, LogError):
                raise failure
