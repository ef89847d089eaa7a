"""What is sent from outside of services keeps its order, shares writers, and fails clearly."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from tidegate.errors import FencedError, LogUnavailableError, RecordTooLargeError
from tidegate.host.producer import TopicProducer
from tidegate.logs.base import NewRecord, Records, TopicPartition, TopicSpec
from tidegate.testing import MemoryLog

ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)


class Writer:
    """A slow log that fails on demand."""

    def __init__(self, log: SlowLog, transactional_id: str | None) -> None:
        self._log, self._id = log, transactional_id

    async def append(self, records: Records, then: object = None) -> Mapping[TopicPartition, int]:
        self._log.appends.append(sum(map(len, records.values())))
        await self._log.open.wait()
        if self._log.failures:
            raise self._log.failures.pop()
        return await (await self._log.memory.writer(self._id)).append(records)

    async def close(self) -> None:
        self._log.closed += 1


class SlowLog(MemoryLog):
    def __init__(self) -> None:
        super().__init__()
        self.memory = MemoryLog(max_record_bytes=1000)
        self.open = asyncio.Event()
        self.appends: list[int] = []
        self.failures: list[Exception] = []
        self.opened: list[str | None] = []
        self.closed = 0

    async def writer(self, transactional_id: str | None = None) -> Writer:  # type: ignore[override]
        self.opened.append(transactional_id)
        return Writer(self, transactional_id)

    async def values(self, source: TopicPartition) -> list[bytes | None]:
        reader = self.memory.reader()
        reader.assign({source: 0})
        return [record.value for batch in await reader.read() for record in batch.records]


@pytest.fixture
async def log() -> SlowLog:
    made = SlowLog()
    await made.memory.create([TopicSpec(name="t", partitions=2)])
    return made


def record(number: int, size: int = 1) -> NewRecord:
    return b"k", str(number).encode().rjust(size, b" "), 0, ()


async def test_records_sent_during_an_append_are_batched_in_order(log: SlowLog) -> None:
    producer = TopicProducer(log, "app")
    sends = [asyncio.create_task(producer.send(ONE, record(number))) for number in range(50)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    sends += [asyncio.create_task(producer.send(ONE, record(number))) for number in range(50, 100)]
    await asyncio.sleep(0)
    log.open.set()
    positions = await asyncio.gather(*sends)

    assert [int(value or b"") for value in await log.values(ONE)] == list(range(100))
    assert log.appends == [50, 50]
    assert log.opened == [None]
    assert positions[0] >= 1
    assert positions[99] > 99
    await producer.close()
    assert log.closed == 1


async def test_a_refused_record_does_not_affect_the_others(log: SlowLog) -> None:
    log.open.set()
    producer = TopicProducer(log, "app")

    sizes = [1, 1, 5000, 1]
    sent = [producer.send(ONE, record(number, size)) for number, size in enumerate(sizes)]
    outcomes = await asyncio.gather(*sent, producer.send(TWO, record(7)), return_exceptions=True)

    assert [isinstance(outcome, RecordTooLargeError) for outcome in outcomes] == [False, False, True, False, False]
    assert [int(value or b"") for value in await log.values(ONE)] == [0, 1, 3]
    assert [int(value or b"") for value in await log.values(TWO)] == [7]
    await producer.close()


async def test_after_an_error_there_is_another_writer(log: SlowLog) -> None:
    log.open.set()
    producer = TopicProducer(log, "app")
    log.failures.append(LogUnavailableError("nobody answers"))

    with pytest.raises(LogUnavailableError, match=r"nobody answers\. Whether the record is in the log is not known"):
        await producer.send(ONE, record(1))
    await producer.send(ONE, record(2))

    assert log.opened == [None, None]
    await producer.close()


async def test_many_go_through_one_writer_with_an_id_of_its_own(log: SlowLog) -> None:
    log.open.set()
    producer, another = TopicProducer(log, "app"), TopicProducer(log, "app")
    ends = await producer.send_together({ONE: [record(1), record(2)], TWO: [record(3)]})
    await another.send_together({ONE: [record(4)]})
    assert set(ends) == {ONE, TWO}

    log.failures.append(LogUnavailableError("nobody answers"))
    with pytest.raises(LogUnavailableError, match="all of the records are in the log or none"):
        await producer.send_together({ONE: [record(5)]})
    log.failures.append(FencedError("x"))
    with pytest.raises(FencedError):
        await producer.send_together({ONE: [record(5)]})
    await producer.send_together({ONE: [record(6)]})

    first, second, *again = log.opened
    assert first is not None
    assert first.startswith("app.send.")
    assert second != first
    assert again == [first, first]


async def test_unsent_records_fail_when_the_app_stops(log: SlowLog) -> None:
    producer = TopicProducer(log, "app")
    under_way = asyncio.create_task(producer.send(ONE, record(1)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    waiting = asyncio.create_task(producer.send(ONE, record(2)))
    await asyncio.sleep(0)

    await producer.close()

    with pytest.raises(LogUnavailableError, match="whether the record was sent is not known"):
        await under_way
    with pytest.raises(LogUnavailableError, match="stopped before the record was sent"):
        await waiting
