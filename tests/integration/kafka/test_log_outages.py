"""The log while its broker is away: killed and restarted, or halted so that nothing answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from aiokafka.cluster import ClusterMetadata

from tests.contract.logs import new, read_all, values
from tidegate.errors import FencedError, LogUnavailableError, UnknownTopicError
from tidegate.logs.base import NewRecord, TopicPartition, TopicSpec
from tidegate.logs.kafka import KafkaLog
from tidegate.logs.kafka.connection.client import Client
from tidegate.settings import KafkaSettings
from tidegate_app.kafka.broker import Broker

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


@pytest.fixture(scope="module")
def module_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    broker = Broker(tmp_path_factory.mktemp("outages"))
    broker.start()
    yield broker
    broker.kill()


@pytest.fixture
def broker(module_broker: Broker) -> Iterator[Broker]:
    """Not to be shared with other modules: it is killed and halted. It runs again when a test has ended."""
    yield module_broker
    module_broker.resume()
    module_broker.start()


@asynccontextmanager
async def opened(broker: Broker, **settings: float) -> AsyncIterator[KafkaLog]:
    log = KafkaLog(broker.url, KafkaSettings(**settings))  # type: ignore[arg-type]  # numbers all
    await log.start()
    try:
        await log.delete(["a"])
        await log.create([TopicSpec(name="a", partitions=2)])
        yield log
    finally:
        await log.stop()


async def test_appends_and_reads_stall_during_a_broker_outage_and_resume_after_it(broker: Broker) -> None:
    async with opened(broker) as log:
        writer, other = await log.writer("w"), await log.writer()
        reader = log.reader()
        reader.assign({A0: 0, A1: 0})
        read: list[bytes | None] = []
        number, under_way = 0, asyncio.Event()

        async def append() -> None:
            nonlocal number, writer
            while number < 60:
                if number == 20:
                    under_way.set()
                try:
                    await writer.append({A0: new(b"%d" % number)})
                except LogUnavailableError:  # whether it was committed is unknown
                    writer = await log.writer("w")
                    if values(await read_all(log, A0))[number:] == []:
                        await writer.append({A0: new(b"%d" % number)})
                await other.append({A1: new(b"%d" % number)})
                number += 1

        async def keep_reading() -> None:
            while len(read) < 120:
                for batch in await reader.read(timeout=1):
                    read.extend(values(batch.records))

        appending, reading = asyncio.create_task(append()), asyncio.create_task(keep_reading())
        await under_way.wait()
        await asyncio.to_thread(broker.kill)
        reached = number
        await asyncio.sleep(1)
        assert number <= reached + 1 < 60, "it stalls"
        await asyncio.to_thread(broker.start)
        await asyncio.wait_for(asyncio.gather(appending, reading), 60)

        expected = [b"%d" % number for number in range(60)]
        assert values(await read_all(log, A0)) == values(await read_all(log, A1)) == expected
        assert sorted(read, key=str) == sorted([*expected, *expected], key=str)


async def test_an_append_without_a_response_times_out_and_its_writer_closes_at_once(broker: Broker) -> None:
    async with opened(broker, kafka_transaction_timeout=2) as log:
        writer = await log.writer("w")
        await writer.append({A0: new(b"before")})
        await asyncio.to_thread(broker.pause)

        started = time.monotonic()
        with pytest.raises(LogUnavailableError, match="'w'"):
            await writer.append({A0: new(b"1"), A1: new(b"1")})
        failed = time.monotonic()
        await writer.close()
        closed = time.monotonic()

        assert 1.5 < failed - started < 4
        assert closed - failed < 0.5
        await asyncio.to_thread(broker.resume)
        await (await log.writer("w")).append({A0: new(b"after")})
        await log.writer("w")
        assert values(await read_all(log, A0)) in ([b"before", b"after"], [b"before", b"1", b"after"])
        assert len(await read_all(log, A1)) == len(await read_all(log, A0)) - 2


async def test_after_a_lost_commit_response_the_successor_finds_the_whole_transaction_or_none(broker: Broker) -> None:
    async with opened(broker, kafka_transaction_timeout=2) as log:
        writer = await log.writer("w")

        def halt(_: object) -> dict[TopicPartition, list[NewRecord]]:
            assert broker.pause()
            return {}

        with pytest.raises(LogUnavailableError):
            await writer.append({A0: new(b"1"), A1: new(b"1")}, halt)
        await asyncio.to_thread(broker.resume)
        await log.writer("w")
        first, second = values(await read_all(log, A0)), values(await read_all(log, A1))
        assert first == second
        assert first in ([], [b"1"])
        with pytest.raises(FencedError):
            await writer.append({A0: new(b"zombie")})


async def test_a_failed_append_aborts_quickly_without_a_broker(broker: Broker) -> None:
    async with opened(broker) as log:
        writer = await log.writer("w")

        def fail(_: object) -> dict[TopicPartition, list[NewRecord]]:
            assert broker.pause()
            raise ZeroDivisionError

        started = time.monotonic()
        with pytest.raises(ZeroDivisionError):
            await writer.append({A0: new(b"1")}, fail)
        assert time.monotonic() - started < 3
        await asyncio.to_thread(broker.resume)
        await log.writer("w")
        assert values(await read_all(log, A0)) == []


async def test_stopping_is_quick_without_a_broker(broker: Broker) -> None:
    before = asyncio.all_tasks()
    log = KafkaLog(broker.url, KafkaSettings())
    await log.start()
    await log.delete(["a"])
    await log.create([TopicSpec(name="a", partitions=2)])
    writer, reader = await log.writer("w"), log.reader()
    await writer.append({A0: new(b"1")})
    reader.assign({A0: 0, A1: 0})
    await reader.read(timeout=5)
    await asyncio.to_thread(broker.pause)
    appending = asyncio.create_task(writer.append({A0: new(b"2")}))
    await asyncio.sleep(0.2)
    appending.cancel()
    await asyncio.wait([appending])

    started = time.monotonic()
    await writer.close()
    await log.stop()

    assert time.monotonic() - started < 6
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before


async def test_empty_topic_metadata_is_requested_again(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one may, which comes back from a halt: seen once. What it says then is no reason to stop."""
    ask, answers = Client.fetch_all_metadata, 0

    async def forgetful(client: Client) -> ClusterMetadata:
        nonlocal answers
        answers += 1
        return ClusterMetadata() if answers <= 3 else await ask(client)

    async with opened(broker) as log:
        await log.create([TopicSpec(name="b", partitions=1)])
        writer = await log.writer()
        await writer.append({A0: new(b"1")})
        monkeypatch.setattr(Client, "fetch_all_metadata", forgetful)
        await writer.append({TopicPartition("b", 0): new(b"2")})
        assert values(await read_all(log, TopicPartition("b", 0))) == [b"2"]
        with pytest.raises(UnknownTopicError, match="no topic 'c'"):
            await writer.append({TopicPartition("c", 0): new(b"3")})
        await log.delete(["b"])
    assert answers > 3
