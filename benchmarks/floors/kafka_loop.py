"""W on Kafka as a bare loop: a floor to compare with, not a design.

Reads JSON likes, keeps a counter per key, emits every second count; one transactional producer per partition, commits
overlap the next batches. No recovery, rebalance, timers or error handling.
"""

from __future__ import annotations

import asyncio
import os
import time
import zlib
from collections.abc import Sequence
from typing import Any

import msgspec
import uvloop
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.structs import OffsetAndMetadata
from rocksdict import Options, Rdict, WriteBatch, WriteOptions

from benchmarks.apps.settings import BROKER, ID, INPUT, OUTPUT, PARTITIONS
from benchmarks.workloads.events import Count, Like

__all__ = ("main",)

CHANGELOG, OUT_PARTITIONS = f"{ID}-changelog", 4
COMMIT = int(os.environ.get("BENCH_COMMIT_MS", "200")) / 1000
DATA = os.environ.get("BENCH_DATA", ".")

decode = msgspec.json.Decoder(Like).decode
encode = msgspec.json.Encoder().encode


class Task:
    """A partition: its counters, their changes since the last commit, and its transactions."""

    def __init__(self, producer: Any, partition: int) -> None:
        self.producer, self.partition = producer, partition
        self.store = Rdict(f"{DATA}/{partition}", Options(raw_mode=True))
        write = WriteOptions()
        # The changelog is the write-ahead log. (A property; its stub is wrong.)
        write.disable_wal = True  # type: ignore[method-assign, assignment]
        self.store.set_write_options(write)
        self.values: dict[bytes, int] = {}
        self.dirty: set[bytes] = set()
        self.outputs: list[tuple[bytes, Count, int]] = []
        self.position, self.last_commit = 0, time.monotonic()
        self.commit_task: asyncio.Task[None] | None = None

    async def handle(self, key: bytes, like: Like, timestamp: int) -> None:
        n = self.values.get(key)
        if n is None:
            raw = self.store.get(key)
            n = int(raw) if raw is not None else 0
        n += 1
        self.values[key] = n
        self.dirty.add(key)
        if n % 2 == 0:
            self.outputs.append((key, Count(like.liked, n), timestamp))

    def run(self, records: Sequence[Any]) -> None:
        for record in records:
            coroutine = self.handle(record.key, decode(record.value), record.timestamp)
            try:
                coroutine.send(None)  # a handler that does not suspend finishes here, without the event loop
            except StopIteration:
                continue
            raise RuntimeError("this loop does not park waiting handlers")
        self.position = records[-1].offset + 1

    @property
    def due(self) -> bool:
        waiting = self.commit_task is None or self.commit_task.done()
        return bool(self.dirty) and waiting and time.monotonic() - self.last_commit > COMMIT

    async def commit(self) -> None:
        # Frozen and encoded before the first await: handlers continue to change the values while this is sent.
        outputs, self.outputs = self.outputs, []
        changes = [(key, b"%d" % self.values[key]) for key in self.dirty]
        self.dirty, position = set(), self.position
        producer, batches = self.producer, Batches(self.producer)
        await producer.begin_transaction()
        for key, value, timestamp in outputs:
            await batches.append((OUTPUT, zlib.crc32(key) % OUT_PARTITIONS), key, encode(value), timestamp)
        stored, now = WriteBatch(raw_mode=True), int(time.time() * 1000)
        for key, raw in changes:
            stored.put(key, raw)
            await batches.append((CHANGELOG, self.partition), key, raw, now)
        await batches.send_all()
        offsets = {TopicPartition(INPUT, self.partition): OffsetAndMetadata(position, "")}
        await producer.send_offsets_to_transaction(offsets, ID)
        await producer.commit_transaction()
        self.store.write(stored)
        self.last_commit = time.monotonic()


class Batches:
    """The record batches of one transaction, by topic and partition."""

    def __init__(self, producer: Any) -> None:
        self._producer = producer
        self._builders: dict[tuple[str, int], Any] = {}
        self._pending: list[Any] = []

    async def append(self, target: tuple[str, int], key: bytes, value: bytes, timestamp: int) -> None:
        builders = self._builders
        builder = builders.get(target) or builders.setdefault(target, self._producer.create_batch())
        if builder.append(key=key, value=value, timestamp=timestamp) is None:  # full
            await self._send(target, builder)
            builder = builders[target] = self._producer.create_batch()
            builder.append(key=key, value=value, timestamp=timestamp)

    async def _send(self, target: tuple[str, int], builder: Any) -> None:
        builder.close()
        self._pending.append(await self._producer.send_batch(builder, target[0], partition=target[1]))

    async def send_all(self) -> None:
        for target, builder in self._builders.items():
            await self._send(target, builder)
        await asyncio.gather(*self._pending)  # EndTxn would succeed even if one of these had failed


async def main() -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=BROKER)
    await admin.start()
    await admin.create_topics([NewTopic(CHANGELOG, PARTITIONS, 1, topic_configs={"cleanup.policy": "compact"})])
    await admin.close()
    consumer = AIOKafkaConsumer(
        INPUT,
        bootstrap_servers=BROKER,
        group_id=ID,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_partition_fetch_bytes=4 << 20,
        isolation_level="read_committed",
    )
    await consumer.start()
    while True:
        if consumer.assignment():
            break
        await asyncio.sleep(0.05)
    tasks = {place: await open_task(place) for place in consumer.assignment()}
    while True:
        for place, records in (await consumer.getmany(timeout_ms=50, max_records=4000)).items():
            tasks[place].run(records)
        for task in tasks.values():
            if task.due:
                task.commit_task = asyncio.ensure_future(task.commit())
                task.commit_task.add_done_callback(asyncio.Task.result)


async def open_task(place: TopicPartition) -> Task:
    producer = AIOKafkaProducer(
        bootstrap_servers=BROKER, transactional_id=f"{ID}.{place.partition}", acks="all", max_batch_size=1 << 20
    )
    await producer.start()
    return Task(producer, place.partition)


if __name__ == "__main__":
    uvloop.run(main())
