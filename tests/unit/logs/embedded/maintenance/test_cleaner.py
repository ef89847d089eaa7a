"""Compaction beyond the contract: automatic, in bounded steps, concurrent with appends."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.contract.logs import ManualClock, read_all, values
from tidegate.logs.base import NewRecord, TopicPartition, TopicSpec
from tidegate.logs.embedded import EmbeddedLog, EmbeddedOptions
from tidegate.logs.embedded.blocks import decode_block, prefix_end
from tidegate.logs.embedded.database import scan
from tidegate.logs.embedded.maintenance.cleaner import Cleaner

C0 = TopicPartition("c", 0)
OPTIONS = EmbeddedOptions(block_records=50, clean_records=200, clean_keys=100, clean_step=60, maintenance_interval=0.01)
BY_HAND = EmbeddedOptions(block_records=50, clean_keys=100, clean_step=60, maintenance_interval=1000)


@asynccontextmanager
async def running(directory: Path, options: EmbeddedOptions) -> AsyncIterator[EmbeddedLog]:
    log = EmbeddedLog(directory, options=options, clock=ManualClock())
    await log.start()
    await log.create([TopicSpec(name="c", partitions=1, compact=True)])
    try:
        yield log
    finally:
        await log.stop()


def changes(turn: int, keys: range) -> list[NewRecord]:
    return [(b"k%d" % key, b"%d" % turn, 0, ()) for key in keys]


def blocks(log: EmbeddedLog) -> list[int]:
    """How many records each block has."""
    prefix = log.partition(C0).block_prefix
    return [len(decode_block(packed).records) for _, packed in scan(log.database, prefix, prefix_end(prefix))]


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0.01)


async def test_a_changelog_is_compacted_by_itself_when_it_is_worth_it(tmp_path: Path) -> None:
    async with running(tmp_path, OPTIONS) as log:
        writer = await log.writer("w")
        row = log.partition(C0).row
        await writer.append({C0: changes(0, range(150))})
        await asyncio.sleep(0.05)
        assert row.clean_to == 0

        for turn in range(1, 10):
            await writer.append({C0: changes(turn, range(150))})
        await eventually(lambda: row.dirty_records < 200 and row.clean_to > 0)
        assert row.clean_records == 150
        assert {record.key: record.value for record in await read_all(log, C0)} == {
            b"k%d" % key: b"9" for key in range(150)
        }


async def test_a_changelog_of_few_large_records_is_compacted_automatically(tmp_path: Path) -> None:
    options = EmbeddedOptions(clean_bytes=100_000, maintenance_interval=0.01)
    async with running(tmp_path, options) as log:
        writer = await log.writer("w")
        for _ in range(20):
            await writer.append({C0: [(b"k", os.urandom(10_000), 0, ())]})
        row = log.partition(C0).row
        await eventually(lambda: row.clean_records == 1)
        assert row.bytes < 130_000  # of 200,000; what came last need not be clean yet


async def test_readers_and_writers_continue_during_compaction(tmp_path: Path) -> None:
    async with running(tmp_path, OPTIONS) as log:
        writer = await log.writer("w")
        reader = log.reader()
        reader.assign({C0: 0})
        folded: dict[bytes | None, bytes | None] = {}
        for turn in range(150):
            await writer.append({C0: changes(turn, range(turn % 7, 150, 3))})
            for batch in await reader.read(max_records=40):
                folded |= {record.key: record.value for record in batch.records}
        expected = {b"k%d" % key: b"%d" % turn for turn in range(150) for key in range(turn % 7, 150, 3)}
        while batches := await reader.read():
            for batch in batches:
                folded |= {record.key: record.value for record in batch.records}
        assert folded == expected
        assert {record.key: record.value for record in await read_all(log, C0)} == expected
        assert log.partition(C0).row.clean_to > 0


async def test_small_transactions_are_joined_into_full_blocks(tmp_path: Path) -> None:
    async with running(tmp_path, BY_HAND) as log:
        writer = await log.writer("w")
        for key in range(200):
            await writer.append({C0: changes(0, range(key, key + 1))})
        assert blocks(log) == [1] * 200
        await log.clean()
        assert len(blocks(log)) <= 8
        assert values(await read_all(log, C0)) == [b"0"] * 200


async def test_a_pass_leaves_blocks_alone_that_need_no_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(tmp_path, BY_HAND) as log:
        writer = await log.writer("w")
        for start in range(0, 1000, 50):
            await writer.append({C0: changes(0, range(start, start + 50))})
        await log.clean()
        await writer.append({C0: changes(1, range(500, 510))})
        sizes = log.partition(C0).row.bytes
        removed = await Cleaner(log.database, log.group_commit, log.options).clean(log.partition(C0), 0, force=True)
        assert 0 < removed < sizes / 5
        assert sum(blocks(log)) == 1000
        assert await Cleaner(log.database, log.group_commit, log.options).clean(log.partition(C0), 0, force=True) == 0


async def test_blocks_that_are_full_of_large_records_are_left_alone(tmp_path: Path) -> None:
    options = EmbeddedOptions(block_bytes=10_000, maintenance_interval=1000)
    async with running(tmp_path, options) as log:
        writer = await log.writer("w")
        await writer.append({C0: [(b"k%d" % key, b"%d" % key * 1500, 0, ()) for key in range(100)]})
        await log.clean()
        before = blocks(log)
        assert len(before) > 10
        cleaner = Cleaner(log.database, log.group_commit, log.options)
        assert await cleaner.clean(log.partition(C0), 0, force=True) == 0
        assert blocks(log) == before


async def test_more_keys_than_fit_in_memory_take_more_passes(tmp_path: Path) -> None:
    async with running(tmp_path, BY_HAND) as log:
        writer = await log.writer("w")
        for turn in range(3):
            await writer.append({C0: changes(turn, range(1000))})
        cleaner = Cleaner(log.database, log.group_commit, log.options)
        partition = log.partition(C0)
        passes = 0
        while partition.row.clean_to < partition.row.end:
            await cleaner.clean(partition, 0, force=True)
            passes += 1
        assert passes > 10
        assert values(await read_all(log, C0)) == [b"2"] * 1000
        assert partition.row.clean_records == 1000
        assert partition.row.dirty_records == 0


async def test_sizes_are_counted_right_through_compactions_and_restarts(tmp_path: Path) -> None:
    async with running(tmp_path, BY_HAND) as log:
        writer = await log.writer("w")
        for turn in range(5):
            await writer.append({C0: changes(turn, range(0, 300, turn + 1))})
            await log.clean()
        await writer.append({C0: changes(9, range(10))})
    async with running(tmp_path, BY_HAND) as log:
        partition = log.partition(C0)
        stored = scan(log.database, partition.block_prefix, prefix_end(partition.block_prefix))
        assert partition.row.bytes == sum(len(packed) for _, packed in stored)
        assert (partition.row.clean_records, partition.row.dirty_records) == (300, 10)


async def test_a_topic_may_be_deleted_while_it_is_compacted(tmp_path: Path) -> None:
    async with running(tmp_path, BY_HAND) as log:
        writer = await log.writer("w")
        for turn in range(5):
            await writer.append({C0: changes(turn, range(500))})
        prefix = log.partition(C0).block_prefix
        cleaning = asyncio.create_task(log.clean())
        for _ in range(20):
            await asyncio.sleep(0)
        assert not cleaning.done()
        await log.delete(["c"])
        await cleaning
        assert list(scan(log.database, prefix, prefix_end(prefix))) == []


async def test_compaction_interrupted_at_any_step_resumes_later(tmp_path: Path) -> None:
    expected = {b"k%d" % key: b"4" for key in range(300)}
    for turns in range(5, 60, 9):
        async with running(tmp_path, BY_HAND) as log:
            writer = await log.writer("w")
            for turn in range(5):
                await writer.append({C0: changes(turn, range(300))})
            cleaning = asyncio.create_task(log.clean())
            for _ in range(turns):
                await asyncio.sleep(0)
            cleaning.cancel()
            await asyncio.wait([cleaning])
            row = log.partition(C0).row
            assert row.clean_records + row.dirty_records >= sum(blocks(log))
            assert row.dirty_records <= sum(blocks(log))
            assert {record.key: record.value for record in await read_all(log, C0)} == expected


async def test_an_error_while_compacting_stops_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: object, **__: object) -> int:
        raise OSError("bad sector")

    monkeypatch.setattr(Cleaner, "clean", broken)
    async with running(tmp_path, OPTIONS) as log:
        writer = await log.writer("w")
        await writer.append({C0: changes(0, range(300))})
        await eventually(lambda: log.group_commit.error is not None)
        with pytest.raises(Exception, match="bad sector"):
            await writer.append({C0: changes(0, range(1))})
