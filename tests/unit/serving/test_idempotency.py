"""A request is carried out once, however many workers get it at the same time."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from tidegate.errors import RequestConflictError
from tidegate.logs.base import NewRecord, TopicPartition, TopicSpec
from tidegate.serving.idempotency import BUCKETS, KEPT_MS, IdempotentRequests
from tidegate.testing import MemoryLog
from tidegate.time.clock import ManualClock

TARGET = TopicPartition("orders", 0)


def record(value: str) -> dict[TopicPartition, list[NewRecord]]:
    return {TARGET: [(b"k", value.encode(), 0, ())]}


async def written(log: MemoryLog) -> list[bytes | None]:
    reader = log.reader()
    reader.assign({TARGET: 0})
    found = [one.value for batch in await reader.read() for one in batch.records]
    await reader.close()
    return found


async def new_log(clock: ManualClock) -> MemoryLog:
    log = MemoryLog(clock=clock.now)
    await log.start()
    await log.create([TopicSpec(name="orders", partitions=1)])
    return log


async def test_workers_that_fence_each_other_write_each_request_once() -> None:
    clock = ManualClock(1_700_000_000_000)
    log = await new_log(clock)
    workers = [IdempotentRequests(log, "shop", clock) for _ in range(4)]
    keys = [f"order-{number}" for number in range(3 * BUCKETS)]

    async def send(worker: IdempotentRequests, key: str) -> tuple[bool, int]:
        done = await worker.write(key, key.encode(), record(key))
        return done.again, done.positions["orders"][0]

    answers = await asyncio.gather(*(send(worker, key) for key in keys for worker in workers))

    assert Counter(await written(log)) == {key.encode(): 1 for key in keys}
    for place in range(0, len(answers), len(workers)):
        same = answers[place : place + len(workers)]
        assert sorted(again for again, _ in same) == [False, True, True, True]
        assert len({position for _, position in same}) == 1
    for worker in workers:
        await worker.close()


async def test_an_idempotency_key_of_another_request_is_refused_and_expires_after_a_day() -> None:
    clock = ManualClock(1_700_000_000_000)
    log = await new_log(clock)
    requests = IdempotentRequests(log, "shop", clock)
    await requests.write("a", b"one", record("one"))
    with pytest.raises(RequestConflictError, match="already used"):
        await requests.write("a", b"two", record("two"))
    clock.advance(KEPT_MS + 1)
    assert not (await requests.write("a", b"two", record("two"))).again
    assert await written(log) == [b"one", b"two"]
    await requests.close()
