"""A stalled input is detected, and gets a new reader."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support import Bench
from tests.unit.engine.processing.test_isolation import picky_log
from tidegate import SKIP, App, Context, ValueState
from tidegate.logs.base import Batch
from tidegate.testing import AppHarness


class DeafReader:
    """Knows its positions, and never returns anything."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    async def read(self, **_: Any) -> list[Batch]:
        return []


async def count(ctx: Context, event: int, seen: ValueState[int | None]) -> None:
    seen.value = (seen.value or 0) + 1


@pytest.fixture
def bench() -> Iterator[Bench]:
    """It reads its input with a deaf reader."""
    with Bench(count, app={"stall_seconds": 10.0, "partitions": 1}) as bench:
        bench.run(bench.engine._readers["service"].replace_reader(DeafReader(bench.log.reader())))
        yield bench


def stand_still(bench: Bench, seconds: float) -> None:
    bench.clock.advance(seconds)
    bench.run(bench.engine.monitor.measure())
    bench.settle()


def stalled(bench: Bench) -> float | None:
    return bench.engine.metrics.registry.get_sample_value("tidegate_stalled", {"service": "service", "task": "0"})


def test_a_stalled_input_gets_a_new_reader(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.put("a")
    stand_still(bench, 0)
    stand_still(bench, 9)
    assert bench.value("seen", "a") is None

    stand_still(bench, 2)
    assert bench.value("seen", "a") == 1
    assert "no records from events[0]" in caplog.text
    assert stalled(bench) == 1
    stand_still(bench, 1)
    assert stalled(bench) == 0


def test_a_task_with_a_persistent_stall_is_reopened(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    before = bench.engine.tasks["service.0"]
    with monkeypatch.context() as patched:
        hearing = bench.log.reader
        patched.setattr(bench.log, "reader", lambda: DeafReader(hearing()))
        bench.put("a")
        stand_still(bench, 0)
        stand_still(bench, 11)
        assert bench.value("seen", "a") is None
        assert stalled(bench) == 1
    stand_still(bench, 11)

    assert bench.engine.tasks["service.0"] is not before
    assert bench.value("seen", "a") == 1


def test_a_busy_task_is_not_stalled(caplog: pytest.LogCaptureFixture) -> None:
    gate = asyncio.Event()

    async def wait(ctx: Context, event: int) -> None:
        await gate.wait()

    with Bench(wait, app={"stall_seconds": 10.0, "partitions": 1, "buffer_records": 2}) as bench:
        for number in range(9):
            bench.put_quietly("a", number)
        for _ in range(5):
            bench.clock.advance(11)
            bench.run(bench.engine.monitor.measure())

        assert "no records from" not in caplog.text
        bench.call(gate.set)
        bench.settle()


def test_a_stall_of_one_of_two_services_with_the_same_input_is_detected(caplog: pytest.LogCaptureFixture) -> None:
    app = App("two", stall_seconds=10.0, partitions=1)
    events = app.topic("events")
    app.process(events, name="one")(count)
    app.process(events, name="other")(count)

    with AppHarness(app) as harness:
        harness.run(harness.engine._readers["one"].replace_reader(DeafReader(harness.log.reader())))
        harness.send(events, 0, key="a")
        for seconds in (0, 9, 2):
            harness.clock.advance(seconds)
            harness.run(harness.engine.monitor.measure())

        assert "one.0: no records from events[0]" in caplog.text
        assert "other.0: no records from" not in caplog.text
        harness.settle()
        assert harness.state("one", "seen", "a") == 1


def test_a_handler_that_waits_in_a_task_that_goes_on_with_caution_is_let_wait(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, begun = asyncio.Event(), list[str]()

    async def wait(ctx: Context, event: str) -> None:
        begun.append(event)
        ctx.emit(event)
        if event == "slow" and begun.count("bad"):
            await gate.wait()

    with Bench(wait, service={"errors": SKIP}, app={"stall_seconds": 10.0, "partitions": 1}) as bench:
        with picky_log(monkeypatch):
            bench.send_many(bench.events, ["slow", "bad", "last"], key=str, settle=False)
            bench.settle(wait=False)
            task = bench.engine.tasks["service.0"]
            assert task._isolation_steps is not None, "it goes on with caution"
            for _ in range(3):
                bench.clock.advance(11)
                bench.run(bench.engine.monitor.measure())
                bench.settle(wait=False)

            assert "no records from" not in caplog.text
            assert bench.engine.tasks["service.0"] is task
            bench.call(gate.set)
            bench.settle()
        assert [record.value for record in bench.records(bench.out)] == ["slow", "last"]
