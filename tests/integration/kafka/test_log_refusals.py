"""What a real broker refuses, and what becomes of the rest."""

from __future__ import annotations

import asyncio
import os
import socket
import time
import uuid
from collections.abc import AsyncIterator

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from tests.contract.logs import new, read_all, until_ends, values
from tidegate.errors import (
    FencedError,
    LogError,
    LogUnavailableError,
    OffsetOutOfRangeError,
    RecordRefusedError,
    RecordTooLargeError,
    UnknownTopicError,
)
from tidegate.logs.base import NewRecord, TopicPartition, TopicSpec
from tidegate.logs.kafka import KafkaLog
from tidegate.logs.kafka.reader import KafkaReader
from tidegate.settings import KafkaSettings
from tidegate_app.kafka.plugin import SharedKafka

DAY = 24 * 3600 * 1000


@pytest.fixture
async def admin(kafka: SharedKafka) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka.address)
    await admin.start()
    yield admin
    await admin.close()


@pytest.fixture
def name() -> str:
    """Of topics and transactional ids: others use the broker, too."""
    return f"refusals-{uuid.uuid4().hex[:10]}"


def tomorrow() -> int:
    return time.time_ns() // 1_000_000 + DAY


async def read_for_ever(reader: KafkaReader) -> None:
    while True:
        await reader.read(timeout=5)


async def configuration(admin: AIOKafkaAdminClient, topic: str) -> dict[str, str]:
    [response] = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    return {entry[0]: entry[1] for entry in response.resources[0][4]}


# -- records -----------------------------------------------------------------------------------------------------------


async def test_a_record_with_a_future_timestamp_fails_only_its_own_transaction(log: KafkaLog, name: str) -> None:
    await log.create([TopicSpec(name=name, partitions=2)])
    good, bad = TopicPartition(name, 0), TopicPartition(name, 1)
    writer = await log.writer(name)
    await writer.append({good: new(b"before")})

    with pytest.raises(RecordRefusedError, match=name) as refusal:
        await writer.append({good: new(b"with it"), bad: new(b"ahead", timestamp=tomorrow())})
    await writer.close()
    await (await log.writer(name)).append({good: new(b"after")})
    await log.writer(name)

    assert refusal.value.topic == name
    assert "imestamp" in refusal.value.reason
    assert values(await read_all(log, good)) == [b"before", b"after"]
    assert values(await read_all(log, bad)) == []


async def test_a_refusal_in_the_second_part_of_a_transaction_aborts_the_first(log: KafkaLog, name: str) -> None:
    await log.create([TopicSpec(name=name, partitions=2)])
    good, bad = TopicPartition(name, 0), TopicPartition(name, 1)

    with pytest.raises(RecordRefusedError):
        await (await log.writer(name)).append({good: new(b"1")}, lambda _: {bad: new(b"ahead", timestamp=tomorrow())})
    await log.writer(name)

    assert values(await read_all(log, good)) == []


async def test_an_internal_topic_takes_any_timestamp(log: KafkaLog, name: str) -> None:
    await log.create([TopicSpec(name=name, partitions=1, internal=True)])
    source = TopicPartition(name, 0)
    await (await log.writer()).append({source: new(b"ahead", timestamp=tomorrow())})
    assert values(await read_all(log, source)) == [b"ahead"]


async def test_a_topic_that_takes_small_batches_only_gets_small_batches(
    log: KafkaLog, admin: AIOKafkaAdminClient, name: str
) -> None:
    await admin.create_topics([NewTopic(name, 1, 1, topic_configs={"max.message.bytes": "5000"})])
    source = TopicPartition(name, 0)
    records: list[NewRecord] = [(b"%d" % number, os.urandom(1000), 0, ()) for number in range(100)]
    writer = await log.writer(name)

    assert await writer.append({source: records}) == {source: 100}
    assert await writer.append({source: new(b"more")}) == {source: 102}
    await until_ends(log, {source: 103})

    assert [(record.key, record.value) for record in await read_all(log, source)] == [
        *((key, value) for key, value, _, _ in records),
        (b"k", b"more"),
    ]


async def test_an_oversized_record_fails_its_whole_transaction(
    log: KafkaLog, admin: AIOKafkaAdminClient, name: str
) -> None:
    await admin.create_topics([NewTopic(name, 2, 1, topic_configs={"max.message.bytes": "5000"})])
    good, bad = TopicPartition(name, 0), TopicPartition(name, 1)

    with pytest.raises(RecordTooLargeError) as refusal:
        await (await log.writer(name)).append({good: new(b"1"), bad: new(b"small", os.urandom(10_000), b"small")})
    await log.writer(name)

    assert (refusal.value.topic, refusal.value.limit) == (name, 5000)
    assert refusal.value.size > 10_000
    assert values(await read_all(log, good)) == values(await read_all(log, bad)) == []


async def test_aborted_records_are_skipped_at_any_start_offset(log: KafkaLog, name: str) -> None:
    await log.create([TopicSpec(name=name, partitions=1)])
    source = TopicPartition(name, 0)

    def refuse(_: object) -> dict[TopicPartition, list[NewRecord]]:
        raise ZeroDivisionError

    for number in range(6):
        writer = await log.writer(name)
        if number % 2:
            await writer.append({source: new(b"%d" % number, b"%d" % number)})
        else:
            with pytest.raises(ZeroDivisionError):
                await writer.append({source: new(b"aborted", b"aborted", b"aborted")}, refuse)
    await log.writer(name)
    end = (await log.end_offsets([source]))[source]
    everything = await read_all(log, source)

    assert values(everything) == [b"1", b"1", b"3", b"3", b"5", b"5"]
    assert end == 3 * 4 + 3 * 3
    for position in range(end + 1):
        found = [record.offset for record in await read_all(log, source, position)]
        assert found == [record.offset for record in everything if record.offset >= position]


async def test_readers_wait_until_the_successor_resolves_an_open_transaction(log: KafkaLog, name: str) -> None:
    await log.create([TopicSpec(name=name, partitions=1)])
    source = TopicPartition(name, 0)

    def cancel(_: object) -> dict[TopicPartition, list[NewRecord]]:
        raise asyncio.CancelledError

    left = await log.writer(name)
    with pytest.raises(asyncio.CancelledError):
        await left.append({source: new(b"left open")}, cancel)
    await (await log.writer(f"{name}-other")).append({source: new(b"behind it")})
    undecided = (await log.end_offsets([source]))[source]
    successor = await log.writer(name)
    await successor.append({source: new(b"after it")})
    await log.writer(name)

    assert undecided == 0
    assert values(await read_all(log, source)) == [b"behind it", b"after it"]
    with pytest.raises(FencedError):
        await left.append({source: new(b"zombie")})


# -- positions ---------------------------------------------------------------------------------------------------------


async def test_a_position_in_a_deleted_range_is_out_of_range(
    log: KafkaLog, admin: AIOKafkaAdminClient, name: str
) -> None:
    await log.create([TopicSpec(name=name, partitions=2)])
    trimmed, busy = TopicPartition(name, 0), TopicPartition(name, 1)
    writer = await log.writer()
    await writer.append({trimmed: new(b"0", b"1", b"2"), busy: new(*[b"x"] * 100)})
    await admin.delete_records({trimmed: RecordsToDelete(before_offset=2)})
    reader = log.reader()
    reader.assign({trimmed: 1, busy: 0})

    async def read_what_is_appended() -> None:
        while True:
            await writer.append({busy: new(*[b"x"] * 10)})
            await reader.read(max_records=1, timeout=5)

    with pytest.raises(OffsetOutOfRangeError) as error:
        await asyncio.wait_for(read_what_is_appended(), 30)
    assert (error.value.partition, error.value.offset, error.value.start, error.value.end) == (0, 1, 2, 3)
    reader.assign({trimmed: 2})
    while reader.position(trimmed) < 3:
        await reader.read(timeout=5)


async def test_a_topic_that_is_deleted_while_it_is_read_is_unknown(log: KafkaLog, name: str) -> None:
    await log.create([TopicSpec(name=name, partitions=1), TopicSpec(name=f"{name}-stays", partitions=1)])
    gone, stays = TopicPartition(name, 0), TopicPartition(f"{name}-stays", 0)
    writer = await log.writer()
    reader = log.reader()
    reader.assign({gone: 0, stays: 0})
    await writer.append({gone: new(b"1")})
    while reader.position(gone) < 1:
        await reader.read(timeout=5)

    await log.delete([name])
    with pytest.raises(UnknownTopicError, match=name):
        await asyncio.wait_for(read_for_ever(reader), 30)
    reader.unassign([gone])
    await writer.append({stays: new(b"2")})
    while reader.position(stays) < 1:
        await reader.read(timeout=5)


async def test_reading_an_unknown_topic_is_an_error_and_creates_nothing(log: KafkaLog, name: str) -> None:
    reader = log.reader()
    reader.assign({TopicPartition(name, 0): 0})
    with pytest.raises(UnknownTopicError, match=name):
        await asyncio.wait_for(read_for_ever(reader), 30)
    assert name not in await log.topics()


# -- topics ------------------------------------------------------------------------------------------------------------


async def test_topics_are_created_with_the_configuration_of_their_use(
    log: KafkaLog, admin: AIOKafkaAdminClient, name: str
) -> None:
    changelog = TopicSpec(name=f"{name}.changelog", partitions=2, compact=True, tombstone_ms=5000, internal=True)
    public = TopicSpec(name=name, partitions=1, retention_ms=DAY, append_time=True)
    await log.create([changelog, public])

    assert (await log.topics())[changelog.name] == changelog
    kept = await configuration(admin, changelog.name)
    assert (kept["cleanup.policy"], kept["delete.retention.ms"], kept["retention.ms"]) == ("compact", "5000", "-1")
    assert kept["message.timestamp.after.max.ms"] == str(2**63 - 1)
    shown = await configuration(admin, name)
    assert (shown["cleanup.policy"], shown["retention.ms"], shown["retention.bytes"]) == ("delete", str(DAY), "-1")
    assert shown["message.timestamp.type"] == "LogAppendTime"
    assert shown["message.timestamp.after.max.ms"] == "3600000"


async def test_a_changelog_that_is_not_compacted_is_refused(log: KafkaLog, name: str) -> None:
    await log.create([TopicSpec(name=name, partitions=1)])
    with pytest.raises(LogError, match=r"not compacted.*cleanup\.policy"):
        await log.create([TopicSpec(name=name, partitions=1, compact=True)])


async def test_a_replication_factor_above_the_broker_count_is_refused_with_the_setting(
    kafka: SharedKafka, name: str
) -> None:
    log = KafkaLog(kafka.url, KafkaSettings(kafka_replication=7))
    await log.start()
    with pytest.raises(LogError, match="kafka_replication"):
        await log.create([TopicSpec(name=name, partitions=1)])
    await log.stop()


# -- starting ----------------------------------------------------------------------------------------------------------


async def test_an_unreachable_broker_gives_an_error_with_its_address_and_advice() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"kafka://127.0.0.1:{taken.getsockname()[1]}"
        log = KafkaLog(url, KafkaSettings(kafka_connect_timeout=0.3))
        with pytest.raises(LogUnavailableError, match=rf"{url}.*tidegate kafka start"):
            await log.start()
        await log.stop()


async def test_a_transaction_timeout_above_the_brokers_limit_is_refused_with_the_setting(
    kafka: SharedKafka, name: str
) -> None:
    log = KafkaLog(kafka.url, KafkaSettings(kafka_transaction_timeout=3600))
    await log.start()
    with pytest.raises(LogError, match="kafka_transaction_timeout"):
        await log.writer(name)
    await log.stop()
