"""The recovery of the embedded log after a restart."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from cramjam import lz4
from rocksdict import Options, Rdict

from tests.contract.logs import ManualClock, new, read_all, values
from tidegate.errors import LogFailedError, LogUnavailableError
from tidegate.logs.base import TopicPartition, TopicSpec
from tidegate.logs.embedded import EmbeddedLog, EmbeddedOptions
from tidegate.logs.embedded.blocks import (
    FORMAT,
    FORMAT_KEY,
    NEXT_TOPIC_KEY,
    block_key,
    decode_topic,
    prefix_of,
    topic_key,
)

HOUR = 3_600_000
A0, A1, C0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("c", 0)
SPECS = (TopicSpec(name="a", partitions=2, retention_ms=HOUR), TopicSpec(name="c", partitions=1, compact=True))
OPTIONS = EmbeddedOptions(block_records=3, maintenance_interval=1000)


@asynccontextmanager
async def running(directory: Path, clock: ManualClock | None = None) -> AsyncIterator[EmbeddedLog]:
    log = EmbeddedLog(directory, options=OPTIONS, clock=clock or ManualClock())
    await log.start()
    try:
        yield log
    finally:
        await log.stop()


async def test_everything_is_there_after_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path) as log:
        await log.create(SPECS)
        writer = await log.writer("w")
        for number in range(20):
            await writer.append({A0: new(b"%d" % number, b"x"), C0: new(b"%d" % number)})
        ends = await log.end_offsets([A0, A1, C0])
    async with running(tmp_path) as log:
        assert {name: spec.partitions for name, spec in (await log.topics()).items()} == {"a": 2, "c": 1}
        assert await log.end_offsets([A0, A1, C0]) == ends == {A0: 60, A1: 0, C0: 40}
        assert values(await read_all(log, C0)) == [b"%d" % number for number in range(20)]
        assert await (await log.writer("w")).append({A0: new(b"next")}) == {A0: 61}


async def test_end_offsets_never_regress_even_without_records(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running(tmp_path, clock) as log:
        await log.create(SPECS)
        await (await log.writer()).append({A0: new(b"1", b"2")})
        clock.advance(2 * HOUR)
        await log.clean()
        assert await read_all(log, A0) == []
    async with running(tmp_path, clock) as log:
        assert await log.start_offsets([A0]) == await log.end_offsets([A0]) == {A0: 3}
        await (await log.writer()).append({A0: new(b"3")})
        assert [(record.offset, record.value) for record in await read_all(log, A0)] == [(3, b"3")]


async def test_retention_continues_after_a_restart(tmp_path: Path) -> None:
    clock = ManualClock()
    for number in range(6):
        async with running(tmp_path, clock) as log:
            await log.create(SPECS)
            await (await log.writer()).append({A0: new(b"%d" % number)})
            await log.clean()
            kept = values(await read_all(log, A0))
            assert kept == [b"%d" % n for n in range(max(0, number - 2), number + 1)]
        clock.advance(HOUR // 3 + 1)


async def test_records_written_after_the_last_row_are_found_and_counted(tmp_path: Path) -> None:
    async with running(tmp_path) as log:
        await log.create(SPECS)
        await (await log.writer()).append({A0: new(b"1"), C0: new(b"1")})
        rows = {source: log.database.get(log.partition(source).row_key) for source in (A0, C0)}
        keys = {source: log.partition(source).row_key for source in (A0, C0)}
        await (await log.writer()).append({A0: new(*[b"2"] * 10), C0: new(*[b"2"] * 10)})
        expected = {source: log.partition(source).row for source in (A0, C0)}
        for source, row in rows.items():
            log.database.put(keys[source], row)  # as if the process had died between the sync and the row
    async with running(tmp_path) as log:
        assert {source: log.partition(source).row for source in (A0, C0)} == expected
        assert len(await read_all(log, A0)) == 11


async def test_a_deleted_topic_leaves_no_files(tmp_path: Path) -> None:
    async with running(tmp_path) as log:
        await log.create(SPECS)
        await (await log.writer()).append({A0: new(b"1"), C0: new(b"1")})
        await log.delete(["a", "c"])
    async with running(tmp_path) as log:
        assert await log.topics() == {}
        keys = set(log.database.keys())
    assert keys == {FORMAT_KEY, NEXT_TOPIC_KEY}


async def test_deleting_gives_the_space_back(tmp_path: Path) -> None:
    async with running(tmp_path) as log:
        await log.create([TopicSpec(name="a", partitions=2)])
        writer = await log.writer()
        for _ in range(40):
            await writer.append({A0: new(*[bytes(range(256)) * 1000] * 4)})
        log.database.flush()
        await log.delete(["a"])
        await log.clean()
        assert log.database.property_int_value("rocksdb.total-sst-files-size") == pytest.approx(0, abs=10_000)


async def test_a_log_of_another_format_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path):
        pass
    database = Rdict(str(tmp_path / "log"), Options(raw_mode=True))
    database.put(FORMAT_KEY, b"99")
    database.close()
    with pytest.raises(LogUnavailableError, match="format"):
        async with running(tmp_path):
            pass


async def test_damaged_data_is_an_error_and_never_a_gap(tmp_path: Path) -> None:
    async with running(tmp_path) as log:
        await log.create(SPECS)
        writer = await log.writer()
        for _ in range(200):
            await writer.append({A0: new(*(os.urandom(300) for _ in range(3)))})
        log.database.flush()
    [table] = (tmp_path / "log").glob("*.sst")
    damaged = bytearray(table.read_bytes())
    middle = len(damaged) // 2
    damaged[middle : middle + 50] = b"\xff" * 50
    table.write_bytes(damaged)
    async with running(tmp_path) as log:
        with pytest.raises(LogFailedError, match="checksum"):
            await read_all(log, A0)


async def test_a_log_of_the_previous_format_is_read_and_continues_in_the_current_one(tmp_path: Path) -> None:
    """Its blocks are record after record, compressed or not, with gaps or without."""
    stamped = [(b"k%d" % number, b"v" * 40, 5 + number, (("h", b"%d" % number),)) for number in range(30)]
    before = {0: (1_000, 0, stamped), 40: (1_001, 40, [(b"a", None, 7, ()), (None, b"b", 8, ())], [40, 45])}
    async with running(tmp_path) as log:
        await log.create(SPECS)
    database = Rdict(str(tmp_path / "log"), Options(raw_mode=True))
    prefix = prefix_of(b"b", decode_topic(database[topic_key("a")] or b"").topic_id, 0)
    for first, block in before.items():
        encoded = msgspec.msgpack.encode(block)
        packed = b"\x01" + bytes(lz4.compress_block(encoded)) if first == 0 else b"\x00" + encoded
        database[block_key(prefix, first)] = packed
    database[FORMAT_KEY] = b"2"
    database.close()

    async with running(tmp_path) as log:
        assert log.database.get(FORMAT_KEY) == FORMAT
        await (await log.writer()).append({A0: new(b"next")})
        found = await read_all(log, A0)
    assert [(record.key, record.value, record.timestamp, tuple(record.headers)) for record in found[:30]] == stamped
    assert [record.offset for record in found] == [*range(30), 40, 45, 47]
    assert [(record.key, record.value) for record in found[30:]] == [(b"a", None), (None, b"b"), (b"k", b"next")]
