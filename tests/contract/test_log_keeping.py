"""The additional contract of logs in one process: atomic visibility, time, retention, compaction."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.contract.logs import LOCAL_LOGS, LocalLog, ManualClock, new, read_all, values
from tidegate.errors import OffsetOutOfRangeError
from tidegate.logs.base import TopicPartition, TopicSpec

HOUR = 3_600_000
A0, C0 = TopicPartition("a", 0), TopicPartition("c", 0)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=LOCAL_LOGS)
async def log(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> AsyncIterator[LocalLog]:
    async with LOCAL_LOGS[request.param](tmp_path / "data", clock) as log:
        yield log


async def folded(log: LocalLog, source: TopicPartition) -> dict[bytes | None, bytes | None]:
    """What a reader that folds the whole topic ends up with."""
    return {record.key: record.value for record in await read_all(log, source)}


# -- transactions -----------------------------------------------------------------------------------------------------


async def test_a_transaction_appears_in_all_its_partitions_at_once(log: LocalLog) -> None:
    sources = [TopicPartition("a", number) for number in range(4)]
    await log.create([TopicSpec(name="a", partitions=4)])
    writer = await log.writer("w")
    seen: set[tuple[int, ...]] = set()

    async def look() -> None:
        while (-1,) not in seen:
            offsets = await log.end_offsets(sources)
            seen.add(tuple(offsets[source] for source in sources))
            await asyncio.sleep(0)

    looking = asyncio.create_task(look())
    for number in range(20):
        await writer.append({source: new(b"%d" % number) for source in sources})
        await asyncio.sleep(0)
    seen.add((-1,))
    await looking
    assert len(seen) > 2
    assert all(len(set(offsets)) == 1 for offsets in seen)


# -- time --------------------------------------------------------------------------------------------------------------


async def test_an_append_time_topic_stamps_records_with_the_logs_clock(log: LocalLog, clock: ManualClock) -> None:
    await log.create([TopicSpec(name="a", partitions=1, append_time=True)])
    writer = await log.writer("w")
    first = clock()
    await writer.append({A0: new(b"1", b"2", timestamp=5)})
    clock.advance(1000)
    await writer.append({A0: new(b"3", timestamp=99)})
    assert [record.timestamp for record in await read_all(log, A0)] == [first, first, first + 1000]


async def test_other_topics_keep_the_senders_timestamps(log: LocalLog) -> None:
    await log.create([TopicSpec(name="a", partitions=1)])
    await (await log.writer()).append({A0: new(b"1", timestamp=5)})
    assert [record.timestamp for record in await read_all(log, A0)] == [5]


# -- retention ---------------------------------------------------------------------------------------------------------


async def test_records_are_deleted_after_their_retention(log: LocalLog, clock: ManualClock) -> None:
    await log.create([TopicSpec(name="a", partitions=1, retention_ms=HOUR)])
    writer = await log.writer("w")
    await writer.append({A0: new(b"early")})
    clock.advance(HOUR // 2)
    await writer.append({A0: new(b"late")})
    await log.clean()
    assert values(await read_all(log, A0)) == [b"early", b"late"]

    clock.advance(HOUR // 2 + 1)
    await log.clean()
    assert values(await read_all(log, A0)) == [b"late"]
    assert (await log.start_offsets([A0]))[A0] == 2

    clock.advance(HOUR)
    await log.clean()
    assert (await log.start_offsets([A0])) == (await log.end_offsets([A0])) == {A0: 4}


async def test_retention_counts_from_the_append_and_not_from_the_records_timestamps(
    log: LocalLog, clock: ManualClock
) -> None:
    await log.create([TopicSpec(name="a", partitions=1, retention_ms=HOUR)])
    await (await log.writer()).append({A0: new(b"replayed", timestamp=0)})
    clock.advance(HOUR - 1)
    await log.clean()
    assert values(await read_all(log, A0)) == [b"replayed"]


async def test_a_partition_is_limited_to_its_retention_size(log: LocalLog) -> None:
    await log.create([TopicSpec(name="a", partitions=1, retention_bytes=100_000)])
    writer = await log.writer("w")
    for number in range(1000):
        await writer.append({A0: new(b"%04d" % number * 250)})
        if number % 100 == 0:
            await log.clean()
    await log.clean()
    kept = values(await read_all(log, A0))
    assert kept == [b"%04d" % number * 250 for number in range(1000 - len(kept), 1000)]
    assert len(kept) >= 90


async def test_reading_before_the_start_offset_is_out_of_range(log: LocalLog, clock: ManualClock) -> None:
    await log.create([TopicSpec(name="a", partitions=1, retention_ms=HOUR)])
    await (await log.writer()).append({A0: new(b"1", b"2")})
    reader = log.reader()
    reader.assign({A0: 1})
    clock.advance(2 * HOUR)
    await log.clean()
    with pytest.raises(OffsetOutOfRangeError) as error:
        await reader.read()
    assert (error.value.offset, error.value.start, error.value.end) == (1, 3, 3)


async def test_without_retention_limits_all_records_are_kept(log: LocalLog, clock: ManualClock) -> None:
    await log.create([TopicSpec(name="a", partitions=1)])
    await (await log.writer()).append({A0: new(b"1")})
    clock.advance(1000 * HOUR)
    await log.clean()
    assert values(await read_all(log, A0)) == [b"1"]


# -- compaction --------------------------------------------------------------------------------------------------------


async def test_compaction_keeps_the_latest_record_of_each_key_at_its_offset(log: LocalLog) -> None:
    await log.create([TopicSpec(name="c", partitions=1, compact=True)])
    writer = await log.writer("w")
    for turn in range(10):
        await writer.append({C0: [(b"k%d" % key, b"%d.%d" % (key, turn), 0, ()) for key in range(turn, 10)]})
    before = {record.offset: record for record in await read_all(log, C0)}
    ends = await log.end_offsets([C0])

    await log.clean()

    after = await read_all(log, C0)
    assert [(record.key, record.value) for record in after] == [(b"k%d" % n, b"%d.%d" % (n, n)) for n in range(10)]
    assert all(before[record.offset].value == record.value for record in after)
    assert await log.end_offsets([C0]) == ends
    assert await log.start_offsets([C0]) == {C0: 0}


async def test_a_reader_resumes_within_a_compacted_range(log: LocalLog) -> None:
    await log.create([TopicSpec(name="c", partitions=1, compact=True)])
    writer = await log.writer("w")
    for number in range(30):
        await writer.append({C0: [(b"same", b"%d" % number, 0, ()), (b"%d" % number, b"own", 0, ())]})
    await log.clean()
    everything = [record.offset for record in await read_all(log, C0)]
    for position in range((await log.end_offsets([C0]))[C0] + 1):
        left = [record.offset for record in await read_all(log, C0, position)]
        assert left == [offset for offset in everything if offset >= position]


async def test_a_position_advances_over_gaps_without_records(log: LocalLog) -> None:
    await log.create([TopicSpec(name="c", partitions=1, compact=True)])
    writer = await log.writer("w")
    await writer.append({C0: new(b"1", key=b"x")})
    await writer.append({C0: [(b"y", b"2", 0, ())]})
    await writer.append({C0: [(b"y", None, 0, ())]})
    reader = log.reader()
    reader.assign({C0: 1})
    await reader.read()
    reader.assign({C0: 5})
    assert await reader.read() == []
    assert reader.position(C0) == 6


async def test_records_appended_after_a_compaction_are_compacted_by_the_next(log: LocalLog) -> None:
    await log.create([TopicSpec(name="c", partitions=1, compact=True)])
    writer = await log.writer("w")
    expected = {}
    for turn in range(6):
        for key in range(turn, 40, turn + 1):
            expected[b"k%d" % key] = b"%d" % turn
            await writer.append({C0: [(b"k%d" % key, b"%d" % turn, 0, ())]})
        await log.clean()
        assert await folded(log, C0) == expected
        assert len(await read_all(log, C0)) == len(expected)


async def test_compaction_removes_tombstones_after_their_retention(log: LocalLog, clock: ManualClock) -> None:
    await log.create([TopicSpec(name="c", partitions=1, compact=True, tombstone_ms=HOUR)])
    writer = await log.writer("w")
    await writer.append({C0: [(b"gone", b"1", 0, ()), (b"stays", b"2", 0, ())]})
    await writer.append({C0: [(b"gone", None, 0, ())]})
    await log.clean()
    assert [(r.key, r.value) for r in await read_all(log, C0)] == [(b"stays", b"2"), (b"gone", None)]

    clock.advance(HOUR - 1)
    await log.clean()
    assert [(r.key, r.value) for r in await read_all(log, C0)] == [(b"stays", b"2"), (b"gone", None)]

    clock.advance(1)
    await log.clean()
    assert [(r.key, r.value) for r in await read_all(log, C0)] == [(b"stays", b"2")]


async def test_a_tombstones_retention_begins_at_its_compaction(log: LocalLog, clock: ManualClock) -> None:
    await log.create([TopicSpec(name="c", partitions=1, compact=True, tombstone_ms=HOUR)])
    await (await log.writer()).append({C0: [(b"gone", b"1", 0, ()), (b"gone", None, 0, ())]})
    clock.advance(10 * HOUR)
    await log.clean()
    assert values(await read_all(log, C0)) == [None]
    clock.advance(HOUR)
    await log.clean()
    assert values(await read_all(log, C0)) == []


async def test_a_later_compaction_does_not_extend_a_tombstones_retention(log: LocalLog, clock: ManualClock) -> None:
    await log.create([TopicSpec(name="c", partitions=1, compact=True, tombstone_ms=HOUR)])
    writer = await log.writer("w")
    await writer.append({C0: [(b"a", b"1", 0, ()), (b"gone", None, 0, ()), (b"b", b"1", 0, ())]})
    await log.clean()
    for value in (b"2", b"3"):
        clock.advance(HOUR // 3)
        await writer.append({C0: [(b"a", value, 0, ())]})
        await log.clean()
        assert values(await read_all(log, C0)) == [None, b"1", value]
    clock.advance(HOUR // 3)
    await log.clean()
    assert values(await read_all(log, C0)) == [b"1", b"3"]


async def test_a_key_may_be_written_again_after_its_tombstone(log: LocalLog, clock: ManualClock) -> None:
    await log.create([TopicSpec(name="c", partitions=1, compact=True, tombstone_ms=HOUR)])
    writer = await log.writer("w")
    await writer.append({C0: [(b"k", b"1", 0, ())]})
    await writer.append({C0: [(b"k", None, 0, ())]})
    await log.clean()
    await writer.append({C0: [(b"k", b"2", 0, ())]})
    clock.advance(2 * HOUR)
    await log.clean()
    assert [(r.key, r.value) for r in await read_all(log, C0)] == [(b"k", b"2")]


async def test_long_keys_are_distinguished(log: LocalLog) -> None:
    await log.create([TopicSpec(name="c", partitions=1, compact=True)])
    writer = await log.writer("w")
    keys = [b"x" * 200 + b"%d" % number for number in range(5)]
    for turn in range(3):
        await writer.append({C0: [(key, b"%d" % turn, 0, ()) for key in keys]})
    await log.clean()
    assert [(r.key, r.value) for r in await read_all(log, C0)] == [(key, b"2") for key in keys]


async def test_a_compacted_topic_has_no_retention(log: LocalLog, clock: ManualClock) -> None:
    await log.create([TopicSpec(name="c", partitions=1, compact=True, retention_ms=HOUR, retention_bytes=10)])
    await (await log.writer()).append({C0: new(b"1" * 100)})
    clock.advance(10 * HOUR)
    await log.clean()
    assert values(await read_all(log, C0)) == [b"1" * 100]
