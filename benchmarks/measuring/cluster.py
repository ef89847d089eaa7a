"""The harness's own access to the broker: creating, filling, observing, reading and deleting topics."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from benchmarks.workloads.events import Event
from tidegate.keys import partition_of

__all__ = ("Cluster",)

# The batch size of a producer with a small linger; the same topic serves every peer.
_BATCH_BYTES = 64 << 10

# Old event times must not be deleted while they are read.
_KEPT = {"retention.ms": "-1", "retention.bytes": "-1"}

# The broker timestamps outputs at the append, so that no peer's clock matters.
_STAMPED = _KEPT | {"message.timestamp.type": "LogAppendTime"}


class Cluster:
    """The benchmarked broker, as the harness accesses it. Use `async with Cluster.connect(...)`."""

    def __init__(self, bootstrap: str, admin: AIOKafkaAdminClient, watcher: AIOKafkaConsumer) -> None:
        self.bootstrap = bootstrap
        self._admin, self._watcher = admin, watcher

    @classmethod
    @asynccontextmanager
    async def connect(cls, bootstrap: str) -> AsyncIterator[Cluster]:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        watcher = AIOKafkaConsumer(bootstrap_servers=bootstrap, isolation_level="read_committed")
        try:
            await watcher.start()
            yield cls(bootstrap, admin, watcher)
        finally:
            await watcher.stop()
            await admin.close()

    async def topics(self) -> set[str]:
        return {name for name in await self._admin.list_topics() if not name.startswith("__")}

    async def create_input(self, topic: str, partitions: int) -> None:
        await self._create(topic, partitions, _KEPT)

    async def create_output(self, topic: str, partitions: int) -> None:
        await self._create(topic, partitions, _STAMPED)

    async def _create(self, topic: str, partitions: int, config: dict[str, str]) -> None:
        answer = await self._admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=config)])
        for name, code, *message in answer.topic_errors:
            if code:
                raise RuntimeError(f"topic {name} cannot be made: error {code} {message}")
        for _ in range(500):  # until the broker's metadata includes it
            if len(await self._partitions(topic)) == partitions:
                return
            await asyncio.sleep(0.02)
        raise RuntimeError(f"the broker made topic {topic}, but does not know it")

    async def delete(self, topics: Iterable[str]) -> None:
        if names := sorted(topics):
            await self._admin.delete_topics(names)

    async def _partitions(self, topic: str) -> list[TopicPartition]:
        (description,) = await self._admin.describe_topics([topic])
        return [TopicPartition(topic, item["partition"]) for item in description["partitions"]]

    async def fill(self, topic: str, events: Iterable[Event], partitions: int) -> None:
        """Append events, each to the partition that a Java producer would choose for its key."""
        producer = AIOKafkaProducer(bootstrap_servers=self.bootstrap, acks="all", max_batch_size=_BATCH_BYTES)
        await producer.start()
        pending: list[asyncio.Future[Any]] = []
        try:
            for partition, builder in _batches(events, partitions, producer):
                builder.close()
                pending.append(await producer.send_batch(builder, topic, partition=partition))
                if len(pending) >= 64:
                    await asyncio.gather(*pending)
                    pending.clear()
            await asyncio.gather(*pending)
        finally:
            await producer.stop()

    async def end(self, topic: str) -> dict[TopicPartition, int]:
        """The last stable offset of each partition."""
        ends: dict[TopicPartition, int] = await self._watcher.end_offsets(await self._partitions(topic))
        return ends

    async def read(self, topic: str) -> AsyncIterator[list[Any]]:
        """All committed records, in lists; the order within a partition is kept."""
        ends = await self.end(topic)
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            max_partition_fetch_bytes=4 << 20,
        )
        await consumer.start()
        try:
            consumer.assign(list(ends))
            await consumer.seek_to_beginning(*ends)
            while [True for place, end in ends.items() if await consumer.position(place) < end]:
                for records in (await consumer.getmany(timeout_ms=100, max_records=20_000)).values():
                    yield records
        finally:
            await consumer.stop()


def _batches(events: Iterable[Event], partitions: int, producer: AIOKafkaProducer) -> Iterator[tuple[int, Any]]:
    """Full batches first, the incomplete ones at the end."""
    open_batches: dict[int, Any] = {}
    for key, value, at in events:
        partition = partition_of(key, partitions)
        builder = open_batches.get(partition) or open_batches.setdefault(partition, producer.create_batch())
        if builder.append(key=key, value=value, timestamp=at) is None:
            yield partition, builder
            builder = open_batches[partition] = producer.create_batch()
            builder.append(key=key, value=value, timestamp=at)
    yield from open_batches.items()
