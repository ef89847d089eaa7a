"""AppHarness: what it promises to those who test their services with it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
import pytest

import tidegate.testing
from tidegate import SKIP, App, Context, Default, Monotonic, Timer, ValueState
from tidegate.errors import EncodeError, UnknownNameError, UsageError
from tidegate.testing import AppHarness


class Word(msgspec.Struct, frozen=True):
    text: str


app = App("words", watermark=Monotonic())
words = app.topic("words", value_type=Word, key="text")
counts = app.topic("counts", value_type=int)
peaks = app.topic("peaks", value_type=int)


@app.process(words, to=counts)
async def counter(ctx: Context, word: Word, seen: Annotated[ValueState[int], Default(0)]) -> None:
    seen.value += 1
    ctx.emit(seen.value)
    ctx.timers.after(60, name="forget", time="processing")


@counter.on_timer("forget")
async def forget(ctx: Context, timer: Timer, seen: ValueState[int]) -> None:
    seen.clear()


@app.process(counts, to=peaks)
async def peak(ctx: Context, count: int, highest: Annotated[ValueState[int], Default(0)]) -> None:
    if count > highest.value:
        highest.value = count
        ctx.emit(count)


def test_a_whole_app_is_driven_from_end_to_end() -> None:
    with AppHarness(app) as harness:
        for _ in range(3):
            harness.send(words, Word("a"))
        assert harness.outputs(peaks) == [1, 2, 3]
        assert harness.state(peak, "highest", "a") == 3


def test_one_service_is_driven_alone() -> None:
    with AppHarness(app, services=[peak]) as harness:
        for count in (1, 5, 3):
            harness.send(counts, count, key="a")
        assert harness.outputs(peaks) == [1, 5]
        harness.send(words, Word("a"))
        assert harness.outputs(peaks) == []
        assert harness.watermark("peak") > 0


def test_outputs_are_given_once_and_records_again_and_again() -> None:
    with AppHarness(app) as harness:
        harness.send(words, Word("a"), timestamp=5, headers=[("trace", b"1")])
        assert harness.outputs(counts) == [1]
        assert harness.outputs(counts) == []
        harness.send(words, Word("a"))
        assert harness.outputs(counts) == [2]
        assert [record.value for record in harness.records(counts)] == [1, 2]
        (record,) = harness.records(words)[:1]
        assert (record.value, record.key, record.timestamp) == (Word("a"), "a", 5)
        assert record.headers == (("trace", b"1"),)


def test_time_advances_only_on_request() -> None:
    with AppHarness(app, now=1_000_000) as harness:
        harness.send(words, Word("a"))
        assert harness.clock.now() == 1_000_000
        assert [timer.at for timer in harness.timers(counter, "a")] == [1_060_000]
        harness.advance(seconds=59)
        assert harness.state(counter, "seen", "a") == 1
        harness.advance(seconds=1)
        assert harness.state(counter, "seen", "a") is None
        with pytest.raises(UsageError, match="forward"):
            harness.advance(seconds=-1)


def test_state_survives_a_restart_and_a_crash() -> None:
    with AppHarness(app) as harness:
        harness.send(words, Word("a"))
        harness.restart()
        harness.send(words, Word("a"))
        harness.crash()
        assert harness.state("counter", "seen", "a") == 2


def test_two_harnesses_of_one_app_are_isolated() -> None:
    with AppHarness(app) as first, AppHarness(app) as second:
        first.send(words, Word("a"))
        assert second.state(counter, "seen", "a") is None


def test_the_environment_has_no_influence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_PARTITIONS", "7")
    with AppHarness(app) as harness:
        assert len(harness._tasks(counter)) == 1
    with AppHarness(app, partitions=3) as harness:
        assert len(harness._tasks(counter)) == 3


@pytest.mark.parametrize("partitions", [1, 5])
def test_many_partitions_give_the_same_results(partitions: int) -> None:
    with AppHarness(app, partitions=partitions) as harness:
        harness.send_many(words, [Word(str(number % 10)) for number in range(50)])
        assert sorted(harness.outputs(peaks)) == sorted(list(range(1, 6)) * 10)


async def test_it_does_not_run_inside_an_event_loop() -> None:
    with pytest.raises(UsageError, match="plain function"), AppHarness(app):
        pass


USES: dict[str, Callable[[AppHarness], object]] = {
    "run": lambda harness: harness.run(asyncio.sleep(0)),
    "send": lambda harness: harness.send(words, Word("a")),
    "state": lambda harness: harness.state(counter, "seen", "a"),
    "advance": lambda harness: harness.advance(seconds=1),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES.keys())
def test_it_is_used_in_a_with_statement(use: Callable[[AppHarness], object]) -> None:
    harness = AppHarness(app)
    with pytest.raises(UsageError, match="with AppHarness"):
        use(harness)
    with harness:
        pass
    with pytest.raises(UsageError, match="with AppHarness"):
        use(harness)


def test_keyed_state_cannot_be_read_without_a_key() -> None:
    with AppHarness(app) as harness, pytest.raises(UsageError, match=r"harness\.state\(counter, 'seen', key\)"):
        harness.state(counter, "seen")


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    with pytest.raises(UnknownNameError, match="counter"), AppHarness(app, services=["unknown"]):
        pass
    with AppHarness(app) as harness:
        with pytest.raises(UnknownNameError, match="words"):
            harness.send("unknown", 1)
        with pytest.raises(UnknownNameError, match="words"):
            harness.records("unknown")
        with pytest.raises(UnknownNameError, match="counter"):
            harness.state("unknown", "seen", "a")
        with pytest.raises(UnknownNameError, match="seen"):
            harness.state(counter, "unknown", "a")
        with pytest.raises(EncodeError):
            harness.send(words, 5)  # type: ignore[misc]


def test_the_harness_times_out_on_handlers_that_wait_forever() -> None:
    stuck = App("stuck")
    events = stuck.topic("events")

    @stuck.process(events, errors=SKIP)
    async def waits(ctx: Context, event: Any) -> None:
        await asyncio.Event().wait()

    with AppHarness(stuck, patience=0.05) as harness, pytest.raises(UsageError, match="patience"):
        harness.send(events, 1, key="k")


def test_a_suspended_handler_can_be_inspected_and_released() -> None:
    slow = App("slow")
    events = slow.topic("events")
    gate = asyncio.Event()

    @slow.process(events)
    async def waits(ctx: Context, event: int, kept: ValueState[int | None]) -> None:
        await gate.wait()
        kept.value = event

    with AppHarness(slow) as harness:
        harness.send(events, 1, key="k", settle=False)
        harness.settle(wait=False)
        assert harness.state(waits, "kept", "k") is None
        harness.call(gate.set)
        harness.settle()
        assert harness.state(waits, "kept", "k") == 1


def test_an_error_in_the_test_closes_everything() -> None:
    with pytest.raises(ZeroDivisionError), AppHarness(app) as harness:
        raise ZeroDivisionError
    with pytest.raises(UsageError):
        harness.settle()


def test_its_tools_are_exported() -> None:
    for name in tidegate.testing.__all__:
        assert getattr(tidegate.testing, name) is not None
    assert {"AppHarness", "ManualClock", "MemoryLog", "arm", "disarm", "parse", "POINTS", "InjectedFault"} <= set(
        tidegate.testing.__all__
    )
