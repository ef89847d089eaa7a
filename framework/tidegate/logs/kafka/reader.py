"""Reading: which partitions, from where, and who gets how much of what was fetched."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from aiokafka import errors

from tidegate.errors import LogError, OffsetOutOfRangeError
from tidegate.logs.base import Batch, TopicPartition
from tidegate.logs.kafka.connection.broker_errors import translated
from tidegate.logs.kafka.connection.cluster import EARLIEST, LATEST, Cluster
from tidegate.logs.kafka.fetcher import Fetcher, Stream

__all__ = ("KafkaReader",)


class KafkaReader:
    """A Reader of a Kafka cluster.

    Partitions come and go without any effect on the others. A paused one keeps what was fetched of it.
    A broker that is away is waited for: reading stalls, and goes on by itself."""

    def __init__(self, cluster: Cluster, number: int, closed: Callable[[KafkaReader], None]) -> None:
        """`number` tells its connections from those of other readers; `closed` is called in the end."""
        self._cluster, self._closed = cluster, closed
        self._streams: dict[TopicPartition, Stream] = {}
        """In the order in which they are served."""
        self._fetching = Fetcher(cluster, number, self._streams)
        self._skipped = False
        """A position has moved past a gap: whoever waits for it to reach an end must know."""

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        for source, position in positions.items():
            known = self._streams.get(source)
            stream = self._streams[source] = Stream(source, position)  # what is on its way for the old one is dropped
            stream.paused = known is not None and known.paused
        self._fetching.wake()

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
        self._fetching.wake()

    def position(self, source: TopicPartition) -> int:
        return self._streams[source].position

    async def read(self, *, max_records: int = 4000, timeout: float = 0.0) -> list[Batch]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while True:
            self._skipped = False
            await self._raise_failures()
            batches = self._take(max_records)
            self._fetching.go_on()
            remaining = deadline - loop.time()
            if batches or self._skipped or remaining <= 0:
                return batches
            await self._fetching.wait(remaining)

    async def close(self) -> None:
        self._streams.clear()
        await self._fetching.close()
        self._closed(self)

    def _take(self, max_records: int) -> list[Batch]:
        """Give each partition that has something an equal share of what is left to give."""
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
                self._streams[stream.source] = self._streams.pop(stream.source)  # the next time it is asked last
            else:
                self._skipped = True
        return batches

    async def _raise_failures(self) -> None:
        """What a broker, or the data itself, says against reading on. It is said again until the position changes."""
        if self._fetching.failure is not None:
            raise self._fetching.failure
        for source, stream in self._streams.items():
            failure = stream.failure
            if failure is None or stream.paused or stream.ready:
                continue
            if isinstance(failure, errors.OffsetOutOfRangeError):
                start = (await self._cluster.offsets([source], EARLIEST))[source]
                end = (await self._cluster.offsets([source], LATEST))[source]
                raise OffsetOutOfRangeError(source.topic, source.partition, stream.position, start, end)
            if isinstance(failure, errors.KafkaError):
                raise translated(failure, f"reading {source}") from failure
            if isinstance(failure, LogError):
                raise failure
