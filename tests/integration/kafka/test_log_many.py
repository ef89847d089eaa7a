"""Many tasks in one worker: what their writers and readers cost, and that they do not get in each other's way."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator

import psutil
import pytest

from tests.contract.logs import new, read_all, until_ends, values
from tidegate.logs.base import TopicPartition, TopicSpec
from tidegate.logs.kafka import KafkaLog
from tidegate.logs.kafka.fetcher import LANES
from tidegate.logs.kafka.log import WRITE_LANES
from tidegate_app.kafka.plugin import SharedKafka

TASKS = 48


@pytest.fixture
async def sources(log: KafkaLog) -> AsyncIterator[list[TopicPartition]]:
    name = f"many-{uuid.uuid4().hex[:10]}"
    await log.create([TopicSpec(name=name, partitions=TASKS)])
    yield [TopicPartition(name, number) for number in range(TASKS)]
    await log.delete([name])


def connections(kafka: SharedKafka) -> int:
    port = int(kafka.address.rpartition(":")[2])
    return sum(1 for known in psutil.Process().net_connections() if known.raddr and known.raddr.port == port)


async def test_writers_share_their_connections(
    kafka: SharedKafka, log: KafkaLog, sources: list[TopicPartition]
) -> None:
    before = connections(kafka)
    writers = await asyncio.gather(*(log.writer(str(source)) for source in sources))
    await asyncio.gather(*(writer.append({source: new(b"1")}) for writer, source in zip(writers, sources, strict=True)))
    assert connections(kafka) - before <= WRITE_LANES < TASKS
    await until_ends(log, dict.fromkeys(sources, 2))


async def test_a_reader_gives_its_connections_back(
    kafka: SharedKafka, log: KafkaLog, sources: list[TopicPartition]
) -> None:
    await log.end_offsets(sources)
    before = connections(kafka)
    reader = log.reader()
    reader.assign(dict.fromkeys(sources, 0))
    await reader.read(timeout=0.1)
    assert 0 < connections(kafka) - before <= LANES
    await reader.close()
    assert connections(kafka) == before


async def test_assigning_and_revoking_partitions_does_not_affect_others(
    log: KafkaLog, sources: list[TopicPartition]
) -> None:
    """Partitions are read in turn from their start, in between reads of the others."""
    contents = [b"%d" % number for number in range(200)]
    writer = await log.writer()
    await writer.append({source: new(*contents) for source in sources})
    reader = log.reader()
    found: dict[TopicPartition, list[bytes | None]] = {source: [] for source in sources}
    waiting = list(sources)
    while waiting or any(len(values) < 200 for values in found.values()):
        if waiting:
            reader.assign({waiting.pop(): 0})
        for batch in await reader.read(max_records=300, timeout=0.05):
            found[batch.source] += values(batch.records)
            if len(found[batch.source]) == 200:
                reader.unassign([batch.source])
    assert all(read == contents for read in found.values())


async def test_an_idle_partition_does_not_delay_a_new_one(log: KafkaLog, sources: list[TopicPartition]) -> None:
    """A broker holds fetches that find nothing: a new partition is not behind them."""
    writer = await log.writer()
    await writer.append({sources[0]: new(b"there")})
    reader = log.reader()
    loop = asyncio.get_running_loop()
    waits = []
    for _ in range(10):
        reader.assign(dict.fromkeys(sources[1:], 0))
        await reader.read(timeout=0.02)
        reader.assign({sources[0]: 0})
        started = loop.time()
        while not await reader.read(timeout=5):
            pass
        waits.append(loop.time() - started)
        reader.unassign([sources[0]])
    assert sorted(waits)[5] < 0.1
    assert values(await read_all(log, sources[0])) == [b"there"]
