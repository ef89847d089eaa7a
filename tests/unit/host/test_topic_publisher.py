"""What is sent to topics from outside of services is keyed, stamped and encoded as services do it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tidegate import App, Topic
from tidegate.errors import EncodeError, LogUnavailableError, UsageError
from tidegate.logs.base import LogRecord, TopicPartition


class Event(msgspec.Struct):
    name: str


def make_app(directory: Path) -> tuple[App, Topic[Event]]:
    app = App("sends", data=directory, partitions=1)
    return app, app.topic("events", value_type=Event, key="name")


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[tuple[App, Topic[Event]]]:
    app, events = make_app(tmp_path)
    await app.start()
    yield app, events
    await app.stop()


async def written(app: App) -> list[LogRecord]:
    reader = app.host.log.reader()
    reader.assign({TopicPartition("events", 0): 0})
    found = [record for batch in await reader.read(timeout=0) for record in batch.records]
    await reader.close()
    return found


async def test_a_record_has_its_key_value_time_and_headers(running: tuple[App, Topic[Event]]) -> None:
    app, events = running
    position = await events.send(Event("x"), timestamp=5, headers=[("mine", b"1"), ("mine", b"2")])
    await events.send(Event("y"), key="other", headers={"mine": b"3"})
    first, second = await written(app)
    assert position == first.offset + 1
    assert (first.key, first.value, first.timestamp) == (b"x", b'{"name":"x"}', 5)
    assert first.headers == (("mine", b"1"), ("mine", b"2"))
    assert (second.key, second.headers) == (b"other", (("mine", b"3"),))
    assert abs(second.timestamp - app.host.clock.now()) < 60_000


@pytest.mark.parametrize("when", [1_700_000_000_500, 1_700_000_000.5, datetime.fromtimestamp(1_700_000_000.5, UTC)])
async def test_times_are_milliseconds_or_moments_or_fausts_seconds(
    running: tuple[App, Topic[Event]], when: Any
) -> None:
    app, events = running
    await events.send(Event("x"), timestamp=when)
    (record,) = await written(app)
    assert record.timestamp == 1_700_000_000_500


async def test_a_record_that_is_passed_on_does_not_name_the_task_that_sent_it(
    running: tuple[App, Topic[Event]],
) -> None:
    app, events = running
    headers = (("tidegate", b"app/1/task.0/0"), ("tidegate-origin", b"t/0/5"), ("mine", b"1"))
    await events.send(Event("x"), headers=headers)
    (record,) = await written(app)
    assert record.headers == (("mine", b"1"),)


async def test_a_batch_of_records_is_appended_atomically(running: tuple[App, Topic[Event]]) -> None:
    app, events = running
    wrong: Any = "no event"
    with pytest.raises(EncodeError, match="expected a value of type Event"):
        await events.send_many([Event("x"), wrong])
    assert await written(app) == []
    ends = await events.send_many(Event(name) for name in "xyz")
    found = await written(app)
    assert [record.key for record in found] == [b"x", b"y", b"z"]
    assert ends == {0: found[-1].offset + 1}
    assert await events.send_many([]) == {}


async def test_a_value_of_another_type_is_refused_before_its_key_is_extracted(
    running: tuple[App, Topic[Event]],
) -> None:
    _, events = running
    wrong: Any = 5
    with pytest.raises(EncodeError, match="expected a value of type Event"):
        await events.send(wrong)


async def test_sending_before_the_start_and_after_the_stop_is_refused(tmp_path: Path) -> None:
    app, events = make_app(tmp_path)
    for _ in range(2):
        with pytest.raises(LogUnavailableError, match="'sends' is not running, so nothing can be sent to 'events'"):
            await events.send(Event("x"))
        with pytest.raises(LogUnavailableError, match="'sends' is not running"):
            await events.send_many([])
        await app.start()
        await app.stop()


async def test_a_time_that_no_clock_shows_is_refused(running: tuple[App, Topic[Event]]) -> None:
    _, events = running
    with pytest.raises(UsageError, match="out of range"):
        await events.send(Event("x"), timestamp=1 << 70)
