"""The contract of every log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from tests.contract.logs import (
    LOCAL_LOGS,
    MAX_RECORD_BYTES,
    RUN,
    ManualClock,
    kafka_log,
    new,
    read_all,
    until_ends,
    values,
)
from tidegate.errors import (
    EncodeError,
    FencedError,
    OffsetOutOfRangeError,
    PartitionCountError,
    RecordTooLargeError,
    UnknownTopicError,
    UsageError,
)
from tidegate.logs.base import Batch, Log, Reader, Records, TopicPartition, TopicSpec

A, B, C = (f"{letter}-{RUN}" for letter in "abc")
A0, A1, A2 = (TopicPartition(A, number) for number in range(3))
B0 = TopicPartition(B, 0)
W = f"w-{RUN}"
"""A transactional id: with one, appends are atomic."""


@pytest.fixture(params=[*LOCAL_LOGS, "kafka"])
async def log(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Log]:
    if request.param == "kafka":
        opened: AbstractAsyncContextManager[Log] = kafka_log(request.getfixturevalue("kafka").url)
    else:
        opened = LOCAL_LOGS[request.param](tmp_path / "data", ManualClock())
    async with opened as log:
        await log.create([TopicSpec(name=A, partitions=3), TopicSpec(name=B, partitions=1, compact=True)])
        yield log
        await log.delete([A, B, C])


async def ends(log: Log) -> list[int]:
    offsets = await log.end_offsets([A0, A1, A2, B0])
    return [offsets[source] for source in (A0, A1, A2, B0)]


async def contents(log: Log) -> list[list[bytes | None]]:
    """The values in all partitions, once nothing of W is undecided."""
    await (await log.writer(W)).close()
    return [values(await read_all(log, source)) for source in (A0, A1, A2, B0)]


async def read_more(reader: Reader, source: TopicPartition) -> Batch:
    """The next batch of the only partition that has one."""
    batches: list[Batch] = []
    while not batches:
        batches = await asyncio.wait_for(reader.read(timeout=5), 10)
    assert [batch.source for batch in batches] == [source]
    return batches[0]


NOTHING: list[list[bytes | None]] = [[], [], [], []]


# -- appending ---------------------------------------------------------------------------------------------------------


async def test_records_are_read_as_they_were_appended(log: Log) -> None:
    writer = await log.writer()
    await writer.append(
        {
            A0: [
                (b"key", b"value", 1_600_000_000_000, [("name", b"content"), ("name", b"")]),
                (None, b"no key", 0, ()),
                (b"", b"", 2, ()),
                (b"gone", None, 3, ()),
            ]
        }
    )

    records = await read_all(log, A0)

    assert [(r.key, r.value, r.timestamp, list(r.headers)) for r in records] == [
        (b"key", b"value", 1_600_000_000_000, [("name", b"content"), ("name", b"")]),
        (None, b"no key", 0, []),
        (b"", b"", 2, []),
        (b"gone", None, 3, []),
    ]
    assert [r.offset for r in records] == [0, 1, 2, 3]


async def test_an_append_counts_as_written_at_once_and_is_readable_soon(log: Log) -> None:
    writer = await log.writer(W)
    for _ in range(20):
        end = (await writer.append({A0: new(b"1", b"2")}))[A0]
        written = (await log.written_offsets([A0]))[A0]
        assert written >= end
        reader = log.reader()
        reader.assign({A0: end - 1})
        while reader.position(A0) < written:
            await asyncio.wait_for(reader.read(timeout=5), 10)
        await reader.close()


async def test_append_returns_the_position_after_the_last_record(log: Log) -> None:
    writer = await log.writer(W)
    first = await writer.append({A0: new(b"1", b"2"), A1: new(b"3")})
    second = await writer.append({A0: new(b"4")})
    await until_ends(log, {A0: 5})
    records = await read_all(log, A0)

    assert first == {A0: 2, A1: 1}
    assert second == {A0: 4}
    assert [record.offset for record in records] == [0, 1, 3]


async def test_a_transaction_burns_an_offset_in_each_partition_that_it_touches(log: Log) -> None:
    writer = await log.writer(W)
    assert await ends(log) == [0, 0, 0, 0]
    await writer.append({A0: new(b"1", b"2"), A1: new(b"3")})
    await until_ends(log, {A0: 3, A1: 2, A2: 0, B0: 0})
    await writer.append({A0: new(b"4")})
    await until_ends(log, {A0: 5, A1: 2, A2: 0, B0: 0})
    assert [record.offset for record in await read_all(log, A0)] == [0, 1, 3]


async def test_a_reader_of_all_records_is_at_the_end_offset(log: Log) -> None:
    writer = await log.writer(W)
    reader = log.reader()
    reader.assign({A0: 0})
    for count in range(1, 12):
        position = (await writer.append({A0: new(*[b"x"] * count)}))[A0]
        batch = await read_more(reader, A0)
        assert len(batch.records) == count
        await until_ends(log, {A0: position + 1})
        while reader.position(A0) < position + 1:  # the marker may be read apart from the records
            assert await reader.read(timeout=5) == []
        assert reader.position(A0) == position + 1


async def test_a_transaction_can_contain_its_own_offsets(log: Log) -> None:
    writer = await log.writer(W)
    seen = []

    def then(positions: object) -> dict[TopicPartition, list[tuple[bytes, bytes, int, tuple[()]]]]:
        seen.append(positions)
        return {B0: [(b"marker", repr(positions).encode(), 0, ())]}

    positions = await writer.append({A0: new(b"1", b"2"), A1: new(b"3")}, then)

    assert seen == [{A0: 2, A1: 1}]
    assert positions == {A0: 2, A1: 1, B0: 1}
    assert await contents(log) == [[b"1", b"2"], [b"3"], [], [repr(seen[0]).encode()]]


async def test_nothing_is_appended_when_then_fails(log: Log) -> None:
    def then(_: object) -> dict[TopicPartition, list[tuple[bytes, bytes, int, tuple[()]]]]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await (await log.writer(W)).append({A0: new(b"1")}, then)
    assert await contents(log) == NOTHING


async def test_both_parts_of_a_transaction_must_be_disjoint(log: Log) -> None:
    with pytest.raises(UsageError, match=rf"{A}\[0\]"):
        await (await log.writer(W)).append({A0: new(b"1")}, lambda _: {A0: new(b"2")})
    assert await contents(log) == NOTHING


async def test_an_empty_append_is_not_a_transaction(log: Log) -> None:
    writer = await log.writer(W)
    assert await writer.append({}) == {}
    assert await writer.append({A0: []}) == {A0: 0}
    assert await ends(log) == [0, 0, 0, 0]


async def test_many_records_of_one_transaction_are_read_in_order(log: Log) -> None:
    writer = await log.writer(W)
    await writer.append({A0: new(*(b"%d" % number for number in range(3000))), A1: new(b"y" * 50_000, b"z" * 50_000)})
    in_order = [b"%d" % number for number in range(3000)]
    assert await contents(log) == [in_order, [b"y" * 50_000, b"z" * 50_000], [], []]


async def test_concurrent_transactions_do_not_interleave(log: Log) -> None:
    async def append(number: int) -> None:
        writer = await log.writer(f"{W}-{number}")
        for turn in range(5):
            await writer.append({A0: new(*[b"%d.%d" % (number, turn)] * 3), A1: new(b"%d.%d" % (number, turn))})

    await asyncio.gather(*(append(number) for number in range(8)))
    await until_ends(log, {A0: 8 * 5 * 4, A1: 8 * 5 * 2})

    found = values(await read_all(log, A0))
    assert len(found) == 8 * 5 * 3
    assert all(len(set(found[at : at + 3])) == 1 for at in range(0, len(found), 3))
    for each in (found[::3], values(await read_all(log, A1))):
        for number in range(8):
            mine = [value for value in each if value is not None and value.startswith(b"%d." % number)]
            assert mine == [b"%d.%d" % (number, turn) for turn in range(5)]


async def test_a_transaction_is_atomic_across_partitions(log: Log) -> None:
    for number in range(10):
        writer = await log.writer(W)
        try:
            await writer.append({source: new(b"%d" % number) for source in (A0, A1, A2, B0)}, stumble_at(number, 3))
        except ZeroDivisionError:
            assert number % 3 == 0
    assert await contents(log) == [[b"1", b"2", b"4", b"5", b"7", b"8"]] * 4


def stumble_at(number: int, every: int) -> Callable[[Mapping[TopicPartition, int]], Records]:
    def then(_: Mapping[TopicPartition, int]) -> Records:
        if number % every == 0:
            raise ZeroDivisionError
        return {}

    return then


async def test_a_cancelled_append_is_atomic(log: Log) -> None:
    for turns in range(4):
        writer = await log.writer(W)
        task = asyncio.create_task(writer.append({A0: new(b"%d" % turns), A1: new(b"%d" % turns)}))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
    await (await log.writer(W)).append({A0: new(b"last"), A1: new(b"last")})

    first, second, *_ = await contents(log)
    assert first == second
    assert first[-1] == b"last"


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "unknown", [TopicPartition(f"nope-{RUN}", 0), TopicPartition(A, 3)], ids=["topic", "partition"]
)
async def test_an_unknown_partition_fails_the_whole_append(log: Log, unknown: TopicPartition) -> None:
    with pytest.raises(UnknownTopicError, match=unknown.topic):
        await (await log.writer()).append({A0: new(b"1"), unknown: new(b"2")})
    assert await contents(log) == NOTHING
    assert unknown.topic == A or unknown.topic not in await log.topics()


async def test_an_oversized_record_fails_the_whole_append(log: Log) -> None:
    with pytest.raises(RecordTooLargeError) as refusal:
        await (await log.writer()).append({A0: new(b"1"), A1: new(b"small", b"x" * (MAX_RECORD_BYTES + 1), b"small")})
    assert refusal.value.topic == A
    assert refusal.value.size > MAX_RECORD_BYTES == log.max_record_bytes
    assert await contents(log) == NOTHING


async def test_a_compacted_topic_refuses_records_without_a_key(log: Log) -> None:
    with pytest.raises(EncodeError, match=rf"{B}\[0\] has no key"):
        await (await log.writer()).append({A0: new(b"1"), B0: new(b"2", key=None)})
    assert await contents(log) == NOTHING


async def test_a_log_accepts_appends_after_a_refusal(log: Log) -> None:
    with pytest.raises(EncodeError):
        await (await log.writer(W)).append({B0: new(b"1", key=None)})
    await (await log.writer(W)).append({B0: new(b"2")})
    assert await contents(log) == [[], [], [], [b"2"]]


# -- fencing -----------------------------------------------------------------------------------------------------------


async def test_a_newer_writer_fences_older_ones_of_the_same_id(log: Log) -> None:
    old, other = await log.writer(W), await log.writer(f"{W}-other")
    await old.append({A0: new(b"old")})
    newer = await log.writer(W)

    with pytest.raises(FencedError, match=W):
        await old.append({A0: new(b"zombie")})
    await newer.append({A0: new(b"newer")})
    await other.append({A1: new(b"other")})
    await until_ends(log, {A0: 4, A1: 2})

    assert await contents(log) == [[b"old", b"newer"], [b"other"], [], []]


async def test_writers_without_an_id_do_not_fence(log: Log) -> None:
    first, second = await log.writer(), await log.writer()
    await second.append({A0: new(b"second")})
    await first.append({A0: new(b"first")})
    assert values(await read_all(log, A0)) == [b"second", b"first"]


async def test_a_fenced_writers_transaction_is_resolved_before_its_successor_starts(log: Log) -> None:
    old = await log.writer(W)
    under_way = asyncio.create_task(old.append({A0: new(b"under way")}))
    await asyncio.sleep(0)
    await log.writer(W)
    before = await ends(log)
    await asyncio.wait([under_way])
    await asyncio.sleep(0.02)
    assert await ends(log) == before


async def test_opening_a_writer_does_not_wait_for_other_writers(log: Log) -> None:
    async def append(number: int) -> None:
        writer = await log.writer(f"{W}-{number}")
        while True:
            await writer.append({A0: new(b"x")})
            await asyncio.sleep(0)

    busy = [asyncio.create_task(append(number)) for number in range(5)]
    await asyncio.sleep(0.05)
    for _ in range(5):
        writer = await asyncio.wait_for(log.writer(W), 5)
        await asyncio.wait_for(writer.append({A1: new(b"y")}), 5)
    for task in busy:
        task.cancel()
    await asyncio.wait(busy)


# -- reading -----------------------------------------------------------------------------------------------------------


async def test_reading_starts_at_any_offset(log: Log) -> None:
    writer = await log.writer(W)
    for start in (0, 10, 20):
        await writer.append({A0: new(*(b"%d" % number for number in range(start, start + 10)))})
    await until_ends(log, {A0: 33})
    everything = await read_all(log, A0)
    for position in range((await log.end_offsets([A0]))[A0] + 1):
        expected = [record.offset for record in everything if record.offset >= position]
        assert [record.offset for record in await read_all(log, A0, position)] == expected


@pytest.mark.parametrize("limit", [1, 3, 7, 100])
async def test_a_read_respects_its_limit_and_loses_nothing(log: Log, limit: int) -> None:
    writer = await log.writer(W)
    for count in (5, 1, 13):
        await writer.append({source: new(*(b"%d" % number for number in range(count))) for source in (A0, A1)})
    await until_ends(log, {A0: 22, A1: 22})
    reader = log.reader()
    reader.assign({A0: 0, A1: 0})
    offsets: dict[TopicPartition, list[int]] = {A0: [], A1: []}
    while reader.position(A0) < 22 or reader.position(A1) < 22:
        batches = await reader.read(max_records=limit, timeout=5)
        assert sum(len(batch.records) for batch in batches) <= limit
        for batch in batches:
            assert all(record.offset < batch.position for record in batch.records)
            offsets[batch.source] += [record.offset for record in batch.records]
    everything = [record.offset for record in await read_all(log, A0)]
    assert offsets == {A0: everything, A1: everything}


async def test_a_busy_partition_does_not_starve_others(log: Log) -> None:
    writer = await log.writer(W)
    await writer.append({A0: new(*[b"busy"] * 1000), A1: new(b"quiet"), A2: new(*[b"busy"] * 1000)})
    reader = log.reader()
    await until_ends(log, {A0: 1001, A1: 2, A2: 1001})
    reader.assign({A0: 0, A1: 0, A2: 0})
    seen: set[TopicPartition] = set()
    turns = 0
    while turns < 3:
        batches = await reader.read(max_records=10, timeout=5)
        seen |= {batch.source for batch in batches}
        turns += bool(batches)
    assert seen == {A0, A1, A2}


async def test_a_read_waits_for_new_records(log: Log) -> None:
    writer = await log.writer(W)
    reader = log.reader()
    reader.assign({A0: 0, A1: 0})
    reading = asyncio.create_task(reader.read(timeout=10))
    await asyncio.sleep(0.01)
    assert not reading.done()
    await writer.append({A1: new(b"at last")})
    [batch] = await reading
    assert batch.source == A1
    assert values(batch.records) == [b"at last"]


async def test_a_read_returns_nothing_after_its_timeout(log: Log) -> None:
    reader = log.reader()
    reader.assign({A0: 0})
    assert await reader.read() == []
    assert await reader.read(timeout=0.02) == []


async def test_a_paused_partition_is_not_read_until_it_is_resumed(log: Log) -> None:
    writer = await log.writer(W)
    reader = log.reader()
    reader.assign({A0: 0, A1: 0})
    reader.pause([A0])
    await writer.append({A0: new(b"0"), A1: new(b"1")})
    await read_more(reader, A1)
    assert await reader.read(timeout=0.05) == []
    assert reader.position(A0) == 0
    reader.resume([A0])
    await read_more(reader, A0)


async def test_a_partition_that_is_paused_and_resumed_often_is_read_once(log: Log) -> None:
    writer = await log.writer(W)
    await writer.append({A0: new(*(b"%d" % number for number in range(500))), A1: new(*[b"x"] * 500)})
    await until_ends(log, {A0: 501, A1: 501})
    reader = log.reader()
    reader.assign({A0: 0, A1: 0})
    found: list[bytes | None] = []
    while reader.position(A0) < 501:
        for batch in await reader.read(max_records=20, timeout=5):
            found += values(batch.records) if batch.source == A0 else []
        reader.pause([A0])
        await reader.read(max_records=5)
        reader.resume([A0])
    assert found == [b"%d" % number for number in range(500)]


async def test_an_unassigned_partition_is_not_read(log: Log) -> None:
    writer = await log.writer(W)
    await writer.append({A0: new(b"0"), A1: new(b"1")})
    reader = log.reader()
    reader.assign({A0: 0, A1: 0})
    reader.unassign([A0])
    await read_more(reader, A1)


async def test_reassigning_a_partition_moves_only_its_position(log: Log) -> None:
    writer = await log.writer(W)
    await writer.append({A0: new(b"0", b"1", b"2"), A1: new(b"0", b"1")})
    await until_ends(log, {A0: 4, A1: 3})
    reader = log.reader()
    reader.assign({A0: 0, A1: 0})
    await reader.read(max_records=2, timeout=5)
    before = reader.position(A1)
    reader.assign({A0: 2})
    assert (reader.position(A0), reader.position(A1)) == (2, before)
    found: dict[TopicPartition, list[bytes | None]] = {A0: [], A1: []}
    while reader.position(A0) < 4 or reader.position(A1) < 3:
        for batch in await reader.read(timeout=5):
            found[batch.source] += values(batch.records)
    assert found == {A0: [b"2"], A1: [b"0", b"1"][before:]}


async def test_the_assignment_may_change_while_a_read_waits(log: Log) -> None:
    writer = await log.writer()
    await writer.append({A0: new(b"1", b"2")})
    reader = log.reader()
    end = (await log.end_offsets([A0]))[A0]
    reader.assign({A0: end, A1: 0})
    reading = asyncio.ensure_future(reader.read(timeout=20))
    await asyncio.sleep(0.05)
    assert not reading.done()

    reader.assign({A0: 0})
    reader.unassign([A1])
    await writer.append({A1: new(b"3")})

    batches = await reading or await reader.read(timeout=20)
    assert [(batch.source, [record.value for record in batch.records]) for batch in batches] == [(A0, [b"1", b"2"])]
    await reader.close()
    await writer.close()


async def test_a_position_past_the_end_is_out_of_range(log: Log) -> None:
    await (await log.writer(W)).append({A0: new(b"1")})
    await until_ends(log, {A0: 2})
    reader = log.reader()
    reader.assign({A0: 3})
    with pytest.raises(OffsetOutOfRangeError) as error:
        await reader.read(timeout=5)
    assert (error.value.offset, error.value.start, error.value.end) == (3, 0, 2)


# -- topics ------------------------------------------------------------------------------------------------------------


async def test_creating_an_existing_topic_has_no_effect(log: Log) -> None:
    await (await log.writer()).append({A0: new(b"1")})
    await log.create([TopicSpec(name=A, partitions=3), TopicSpec(name=C, partitions=1)])
    assert values(await read_all(log, A0)) == [b"1"]
    assert {A, B, C} <= set(await log.topics())


async def test_a_different_partition_count_is_refused_and_no_topic_is_created(log: Log) -> None:
    with pytest.raises(PartitionCountError) as error:
        await log.create([TopicSpec(name=C, partitions=1), TopicSpec(name=A, partitions=4)])
    assert (error.value.topic, error.value.actual, error.value.expected) == (A, 3, 4)
    assert C not in await log.topics()


async def test_topics_are_described_as_they_were_created(log: Log) -> None:
    spec = TopicSpec(name=C, partitions=2, retention_ms=1000, retention_bytes=10_000, append_time=True)
    await log.create([spec])
    assert (await log.topics())[C] == spec


async def test_a_deleted_topics_records_do_not_reappear_under_its_name(log: Log) -> None:
    writer = await log.writer(W)
    await writer.append({A0: new(b"old", b"old"), B0: new(b"stays")})
    await until_ends(log, {A0: 3, B0: 2})
    await log.delete([A, "never-there"])

    assert {A, B} & set(await log.topics()) == {B}
    with pytest.raises(UnknownTopicError):
        await log.end_offsets([A0])
    await log.create([TopicSpec(name=A, partitions=3)])
    assert await ends(log) == [0, 0, 0, 2]
    await writer.append({A0: new(b"new")})
    assert await contents(log) == [[b"new"], [], [], [b"stays"]]


async def test_offsets_of_unknown_topics_are_an_error(log: Log) -> None:
    for ask in (log.start_offsets, log.end_offsets):
        with pytest.raises(UnknownTopicError, match=f"known: .*{A}.*{B}"):
            await ask([TopicPartition(f"nope-{RUN}", 0)])


# -- trimming ----------------------------------------------------------------------------------------------------------


async def test_a_trim_deletes_only_records_before_its_offset(log: Log) -> None:
    writer = await log.writer(W)
    for number in range(20):
        positions = await writer.append({A0: new(b"%d" % number), A1: new(b"other")})
    await until_ends(log, {A0: positions[A0] + 1, A1: positions[A1] + 1})
    tenth = (await read_all(log, A0))[10].offset

    await log.trim({A0: tenth})
    await log.trim({A0: 1})  # less than before: nothing happens

    assert (await log.start_offsets([A0]))[A0] == tenth
    assert values(await read_all(log, A0)) == [b"%d" % number for number in range(10, 20)]
    assert len(await read_all(log, A1)) == 20
    await writer.append({A0: new(b"more")})
    reader = log.reader()
    reader.assign({A0: 0})
    with pytest.raises(OffsetOutOfRangeError):
        await _read_on(reader)
    await reader.close()
    await writer.close()


async def _read_on(reader: Reader) -> None:
    while True:
        await reader.read(timeout=1.0)
