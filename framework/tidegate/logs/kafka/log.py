"""The log on a Kafka cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from itertools import count
from typing import Final

from tidegate.logs.base import TopicPartition, TopicSpec
from tidegate.logs.kafka.connection.cluster import EARLIEST, LATEST, READ_UNCOMMITTED, Cluster
from tidegate.logs.kafka.connection.options import addresses_of
from tidegate.logs.kafka.groups import Groups
from tidegate.logs.kafka.published_offsets import PublishedOffsets
from tidegate.logs.kafka.reader import KafkaReader
from tidegate.logs.kafka.record_batches import BATCH_OVERHEAD
from tidegate.logs.kafka.topics import Topics
from tidegate.logs.kafka.writer import KafkaWriter
from tidegate.settings import KafkaSettings

__all__ = ("KafkaLog",)

WRITE_LANES: Final = 16
"""Connections to each broker that the writers of a log share: a broker answers the requests of a connection in
order."""


class KafkaLog:
    """A Log on the brokers of a URL such as kafka://127.0.0.1:9092."""

    retention_by_timestamp = True

    def __init__(self, broker: str, settings: KafkaSettings) -> None:
        self._cluster = Cluster(addresses_of(broker), settings)
        self._topics = Topics(self._cluster)
        self.groups = Groups(self._cluster)
        self._published = PublishedOffsets(self.groups)
        self._readers: set[KafkaReader] = set()
        self._numbers = count()

    @property
    def max_record_bytes(self) -> int:
        return self._cluster.settings.kafka_max_request_bytes - BATCH_OVERHEAD

    async def start(self) -> None:
        await self._cluster.start()

    async def stop(self) -> None:
        readers = list(self._readers)
        self._readers.clear()
        await asyncio.gather(*(reader.close() for reader in readers))
        await self._cluster.stop()

    async def create(self, topics: Iterable[TopicSpec]) -> None:
        await self._topics.create(topics)

    async def delete(self, topics: Iterable[str]) -> None:
        await self._topics.delete(topics)

    async def topics(self) -> Mapping[str, TopicSpec]:
        return await self._topics.describe()

    async def start_offsets(self, sources: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        return await self._cluster.offsets(sources, EARLIEST)

    async def end_offsets(self, sources: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        return await self._cluster.offsets(sources, LATEST)

    async def written_offsets(self, sources: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        return await self._cluster.offsets(sources, LATEST, READ_UNCOMMITTED)

    async def trim(self, starts: Mapping[TopicPartition, int]) -> None:
        await self._cluster.delete_records(starts)

    def reader(self) -> KafkaReader:
        reader = KafkaReader(self._cluster, next(self._numbers), self._readers.discard)
        self._readers.add(reader)
        return reader

    async def writer(self, transactional_id: str | None = None) -> KafkaWriter:
        """When this returns, open transactions of earlier writers with the id have ended."""
        lane = ("write", next(self._numbers) % WRITE_LANES)
        writer = KafkaWriter(self._cluster, self._topics, transactional_id, lane)
        await writer.start()
        return writer

    async def publish_positions(self, group: str, positions: Mapping[TopicPartition, int]) -> None:
        await self._published.publish(group, positions)
