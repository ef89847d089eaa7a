"""Retention limits the disk usage at any rate."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from tests.contract.logs import ManualClock, read_all
from tidegate.logs.base import NewRecord, TopicPartition, TopicSpec
from tidegate.logs.embedded import EmbeddedLog, EmbeddedOptions

A0, A1, KEPT = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("kept", 0)
MIB = 1 << 20
OPTIONS = EmbeddedOptions(write_buffer_bytes=MIB, reclaim_bytes=2 * MIB, maintenance_interval=1000)


def size_of(directory: Path) -> int:
    total = 0
    for path in directory.rglob("*"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:  # RocksDB has just removed it
            continue
    return total


def block(number: int) -> list[NewRecord]:
    """About 64 KiB that cannot be compressed."""
    return [(b"%d" % number, os.urandom(1024), 0, ()) for _ in range(64)]


@pytest.mark.parametrize("by", ["size", "time"])
async def test_the_disk_is_bounded_by_retention(tmp_path: Path, by: str) -> None:
    clock = ManualClock()
    log = EmbeddedLog(tmp_path, options=OPTIONS, clock=clock)
    await log.start()
    by_size = TopicSpec(name="a", partitions=2, retention_bytes=2 * MIB)
    by_time = TopicSpec(name="a", partitions=2, retention_ms=32)
    await log.create([by_size if by == "size" else by_time, TopicSpec(name="kept", partitions=1)])
    writer = await log.writer("w")
    largest = 0
    for number in range(700):  # about 44 MiB into partitions that keep 4 MiB in all
        clock.advance(1)
        await writer.append({A0 if number % 2 else A1: block(number)})
        if number % 100 == 0:
            await writer.append({KEPT: [(b"k", b"%d" % number, 0, ())]})
        if number % 10 == 0:
            await log.maintenance.expire()
            await log.maintenance.reclaim()
            largest = max(largest, size_of(tmp_path))
    kept = sum(log.partition(source).row.bytes for source in (A0, A1))
    assert len(await read_all(log, KEPT)) == 7
    assert 1.5 * MIB <= kept <= 6 * MIB
    assert largest < 20 * MIB
    await log.clean()
    await log.stop()
    assert size_of(tmp_path) < 12 * MIB


async def make_garbage(directory: Path, clock: ManualClock) -> None:
    """A log with about 12 MiB on disk that nothing needs. RocksDB may see that by itself; then there is more."""
    for _ in range(10):
        log = EmbeddedLog(directory, options=OPTIONS, clock=clock)
        await log.start()
        await log.create([TopicSpec(name="a", partitions=2, retention_ms=1000)])
        writer = await log.writer("w")
        for number in range(200):
            await writer.append({A0: block(number)})
        log.database.flush()
        clock.advance(10_000)
        await log.maintenance.expire()
        log.database.flush()
        await log.stop()
        if size_of(directory) > 10 * MIB:
            return
    pytest.fail("RocksDB leaves nothing to be given back")


async def test_space_that_an_earlier_owner_did_not_give_back_is_given_back(tmp_path: Path) -> None:
    clock = ManualClock()
    await make_garbage(tmp_path, clock)
    log = EmbeddedLog(tmp_path, options=OPTIONS, clock=clock)
    await log.start()
    await log.maintenance.reclaim()
    await log.stop()
    assert size_of(tmp_path) < 1 * MIB


async def test_a_log_can_be_stopped_while_it_gives_space_back(tmp_path: Path) -> None:
    clock = ManualClock()
    await make_garbage(tmp_path, clock)
    for _ in range(3):
        log = EmbeddedLog(tmp_path, options=OPTIONS, clock=clock)
        await log.start()
        reclaiming = asyncio.create_task(log.maintenance.reclaim())
        await asyncio.sleep(0)
        await log.stop()
        await asyncio.wait([reclaiming])
    log = EmbeddedLog(tmp_path, options=OPTIONS, clock=clock)
    await log.start()
    assert await read_all(log, A0) == []
    await log.stop()


async def test_a_topic_that_is_declared_with_another_retention_gets_it_and_keeps_it(tmp_path: Path) -> None:
    clock = ManualClock()
    log = EmbeddedLog(tmp_path, options=OPTIONS, clock=clock)
    await log.start()
    await log.create([TopicSpec(name="a", partitions=2)])
    writer = await log.writer("w")
    for number in range(64):
        clock.advance(1)
        await writer.append({A0: block(number)})

    await log.create([TopicSpec(name="a", partitions=2, retention_bytes=MIB)])
    for number in range(64):
        clock.advance(1)
        await writer.append({A0: block(number)})
    await log.clean()

    assert log.partition(A0).row.bytes < 3 * MIB
    await log.stop()
    again = EmbeddedLog(tmp_path, options=OPTIONS, clock=clock)
    await again.start()
    assert (await again.topics())["a"].retention_bytes == MIB
    await again.stop()
