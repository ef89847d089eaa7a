"""An input that stands still for no reason is noticed, and read anew."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support import Bench
from tidegate import Context, ValueState
from tidegate.logs.base import Batch


class DeafReader:
    """Knows its positions, and never returns anything."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    async def read(self, **_: Any) -> list[Batch]:
        return []


async def count(ctx: Context, event: int, seen: ValueState[int]) -> None:
    seen.value = (seen.value or 0) + 1


@pytest.fixture
def bench() -> Iterator[Bench]:
    """It reads its input with a deaf reader."""
    with Bench(count, app={"stall_seconds": 10.0, "partitions": 1}) as bench:
        bench.run(bench.engine._feeds["service"].renew(DeafReader(bench.log.reader())))
        yield bench


def stand_still(bench: Bench, seconds: float) -> None:
    bench.clock.advance(seconds)
    bench.run(bench.engine.watch.measure())
    bench.settle()


def stalled(bench: Bench) -> float | None:
    return bench.engine.metrics.registry.get_sample_value("tidegate_stalled", {"service": "service", "task": "0"})


def test_an_input_that_stands_still_is_read_anew(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.put("a")
    stand_still(bench, 0)
    stand_still(bench, 9)
    assert bench.value("seen", "a") is None

    stand_still(bench, 2)
    assert bench.value("seen", "a") == 1
    assert "nothing comes from events[0]" in caplog.text
    assert stalled(bench) == 1
    stand_still(bench, 1)
    assert stalled(bench) == 0


def test_if_that_does_not_help_the_task_is_opened_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_task_that_has_enough_to_do_does_not_stand_still(caplog: pytest.LogCaptureFixture) -> None:
    gate = asyncio.Event()

    async def wait(ctx: Context, event: int) -> None:
        await gate.wait()

    with Bench(wait, app={"stall_seconds": 10.0, "partitions": 1, "buffer_records": 2}) as bench:
        for number in range(9):
            bench.put_quietly("a", number)
        for _ in range(5):
            bench.clock.advance(11)
            bench.run(bench.engine.watch.measure())

        assert "nothing comes" not in caplog.text
        bench.call(gate.set)
        bench.settle()
