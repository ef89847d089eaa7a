"""Random histories on a real broker: transactions that commit, abort and are left open, read in random ways."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Callable, Mapping

import pytest

from tests.contract.logs import read_all, values
from tidegate.errors import FencedError
from tidegate.logs.base import NewRecord, Records, TopicPartition, TopicSpec
from tidegate.logs.kafka import KafkaLog
from tidegate.logs.kafka.reader import KafkaReader
from tidegate.logs.kafka.writer import KafkaWriter
from tidegate.settings import KafkaSettings
from tidegate_app.kafka.plugin import SharedKafka

PARTITIONS = 5
STEPS = 120


class History:
    """Does what chance says, and keeps a list of what must be there then."""

    def __init__(self, log: KafkaLog, name: str, chance: random.Random) -> None:
        self.log, self.name, self.chance = log, name, chance
        self.sources = [TopicPartition(name, number) for number in range(PARTITIONS)]
        self.committed: dict[TopicPartition, list[bytes]] = {source: [] for source in self.sources}
        self.writers: dict[str, KafkaWriter] = {}
        self.zombies: list[KafkaWriter] = []
        self.serial = 0

    async def step(self) -> None:
        what = self.chance.choices(
            [self.append, self.append_plain, self.abort, self.leave_open, self.replace], [10, 3, 4, 1, 2]
        )
        await what[0]()

    async def append(self) -> None:
        records = self.some()
        positions = await (await self.writer()).append(records, self.chance.choice([None, lambda _: {}]))
        assert positions.keys() == records.keys()
        self.commit(records)

    async def append_plain(self) -> None:
        records = self.some()
        await (await self.log.writer()).append(records)
        self.commit(records)

    async def abort(self) -> None:
        with pytest.raises(ZeroDivisionError):
            await (await self.writer()).append(self.some(), raising(ZeroDivisionError()))
        self.writers.clear()

    async def leave_open(self) -> None:
        writer = await self.writer()
        with pytest.raises(asyncio.CancelledError):
            await writer.append(self.some(), raising(asyncio.CancelledError()))
        self.writers.clear()

    async def replace(self) -> None:
        self.zombies += self.writers.values()
        self.writers.clear()
        await self.writer()

    async def writer(self) -> KafkaWriter:
        """One of two; opening it decides what the one before had left open."""
        name = f"{self.name}-{self.chance.randrange(2)}"
        if name not in self.writers:
            self.writers[name] = await self.log.writer(name)
        return self.writers[name]

    def some(self) -> dict[TopicPartition, list[NewRecord]]:
        touched = self.chance.sample(self.sources, self.chance.randint(1, PARTITIONS))
        return {source: [self.one() for _ in range(self.chance.choice([1, 2, 7, 300]))] for source in touched}

    def one(self) -> NewRecord:
        self.serial += 1
        return b"k%d" % (self.serial % 10), b"%d" % self.serial + b"x" * self.chance.choice([0, 50, 3000]), 0, ()

    def commit(self, records: Records) -> None:
        for source, new in records.items():
            self.committed[source] += [value for _, value, _, _ in new if value is not None]


def raising(error: BaseException) -> Callable[[Mapping[TopicPartition, int]], Records]:
    def then(_: Mapping[TopicPartition, int]) -> Records:
        raise error

    return then


async def read_at_random(
    reader: KafkaReader, ends: Mapping[TopicPartition, int], chance: random.Random
) -> dict[TopicPartition, list[bytes | None]]:
    """Everything is read, though partitions are paused, unassigned and reassigned at their positions, in any order."""
    found: dict[TopicPartition, list[bytes | None]] = {source: [] for source in ends}
    positions = dict.fromkeys(ends, 0)
    reader.assign(positions)
    while any(positions[source] < end for source, end in ends.items()):
        source = chance.choice(list(ends))
        match chance.randrange(6):
            case 0:
                reader.pause([source])
            case 1:
                reader.unassign([source])
                reader.assign({source: positions[source]})
            case _:
                reader.resume(ends)
        for batch in await reader.read(max_records=chance.choice([1, 10, 1000]), timeout=0.2):
            found[batch.source] += values(batch.records)
        positions = {source: reader.position(source) for source in ends}
    return found


@pytest.mark.parametrize("seed", [1, 2])
async def test_exactly_the_committed_records_are_read_once_and_in_order(kafka: SharedKafka, seed: int) -> None:
    chance = random.Random(seed)
    log = KafkaLog(kafka.url, KafkaSettings(kafka_max_request_bytes=20_000))
    await log.start()
    try:
        history = History(log, f"random-{uuid.uuid4().hex[:10]}", chance)
        await log.create([TopicSpec(name=history.name, partitions=PARTITIONS)])
        for _ in range(STEPS):
            await history.step()
        for number in range(2):
            await log.writer(f"{history.name}-{number}")
        ends = await log.end_offsets(history.sources)

        assert {source: values(await read_all(log, source)) for source in ends} == history.committed
        assert await read_at_random(log.reader(), ends, chance) == history.committed
        for zombie in history.zombies:
            with pytest.raises(FencedError):
                await zombie.append(history.some())
        assert await log.end_offsets(history.sources) == ends
        await log.delete([history.name])
    finally:
        await log.stop()
