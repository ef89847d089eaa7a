"""Handlers that wait: one at a time for each key, keys side by side, each with its own doings until it ends."""

from __future__ import annotations

import asyncio
import contextvars
import time
from typing import Annotated, Any

import pytest

from tests.support import Bench
from tidegate import SKIP, Context, Default, MapState, ProcessFunction, Timer, ValueState
from tidegate.errors import HandlerOverError
from tidegate.testing import AppHarness

calls: list[Any] = []
gates: dict[str, asyncio.Event] = {}


@pytest.fixture(autouse=True)
def _closed_gates() -> None:
    calls.clear()
    gates.clear()


async def pass_gate(name: str) -> None:
    await gates.setdefault(name, asyncio.Event()).wait()


def open_gate(harness: AppHarness, name: str) -> None:
    harness.call(gates[name].set)
    harness.settle(wait=False)


async def handle(
    ctx: Context,
    event: Any,
    total: Annotated[ValueState[int], Default(0)],
    seen: Annotated[ValueState[list[Any]], Default(factory=list)],
    names: MapState[str, int],
) -> None:
    """Does half before and half after it waits at the gate that its event names."""
    calls.append((ctx.key, event))
    total.value += 1
    seen.value.append(event)
    names[f"{event}-1"] = 1
    ctx.emit(f"{event}-1")
    ctx.timers.after(60, name="later")
    if isinstance(event, str):
        await pass_gate(event)
    total.value += 1
    seen.value.append(event)
    names[f"{event}-2"] = 2
    ctx.emit(f"{event}-2")
    if event == "fail":
        raise ValueError("on purpose")


async def later(ctx: Context, timer: Timer, total: Annotated[ValueState[int], Default(0)]) -> None:
    calls.append((ctx.key, timer.name))


def bench(**options: Any) -> Bench:
    return Bench(handle, timers={"later": later}, **options)


def test_a_suspended_handlers_effects_are_not_committed_before_it_finishes() -> None:
    with bench() as b:
        b.put_quietly("k", "gate")
        assert b.outputs(b.out) == []
        assert {change.value for change in b.changes()} <= {None}  # there was nothing, and there is nothing
        assert b.timers(b.service, "k") == []
        open_gate(b, "gate")
        assert b.outputs(b.out) == ["gate-1", "gate-2"]
        assert b.value("total", "k") == 2
        assert b.value("seen", "k") == ["gate", "gate"]
        assert b.value("names", "k") == {"gate-1": 1, "gate-2": 2}
        assert [timer.name for timer in b.timers(b.service, "k")] == ["later"]


def test_other_handlers_run_and_commit_while_one_is_suspended() -> None:
    with bench() as b:
        b.put_quietly("k", "gate")
        for number in range(3):
            b.put_quietly(f"other{number}", number)
        assert b.outputs(b.out) == ["0-1", "0-2", "1-1", "1-2", "2-1", "2-2"]
        assert b.marker.inputs["events:0"].unfinished == [0]
        open_gate(b, "gate")
        assert b.marker.inputs["events:0"].unfinished == []


def test_records_of_a_key_are_handled_in_order() -> None:
    with bench() as b:
        b.put_quietly("k", "first")
        b.put_quietly("k", 1)
        b.put_quietly("k", "second")
        b.put_quietly("k", 2)
        assert calls == [("k", "first")]
        open_gate(b, "first")
        assert calls == [("k", "first"), ("k", 1), ("k", "second")]
        open_gate(b, "second")
        assert b.outputs(b.out) == ["first-1", "first-2", "1-1", "1-2", "second-1", "second-2", "2-1", "2-2"]
        assert b.value("seen", "k") == ["first"] * 2 + [1] * 2 + ["second"] * 2 + [2] * 2


def test_handlers_of_different_keys_run_concurrently_and_finish_in_any_order() -> None:
    with bench() as b:
        for key in "abc":
            b.put_quietly(key, key)
        assert calls == [("a", "a"), ("b", "b"), ("c", "c")]
        open_gate(b, "c")
        open_gate(b, "a")
        assert b.outputs(b.out) == ["c-1", "c-2", "a-1", "a-2"]
        assert b.marker.inputs["events:0"].unfinished == [2]


def test_after_a_crash_only_unfinished_records_are_handled_again() -> None:
    with bench() as b:
        for number in range(10):
            b.put_quietly(f"k{number}", f"gate{number}" if number % 3 == 0 else number)
        b.put_quietly("k3", "behind")
        open_gate(b, "gate6")
        calls.clear()
        b.run(b.engine.close_tasks(commit=False))
        b.run(b._open())
        b.settle(wait=False)
        assert calls == [("k0", "gate0"), ("k3", "gate3"), ("k9", "gate9")]
        for gate in ("gate0", "gate3", "gate9", "behind"):
            open_gate(b, gate)
        assert len(b.outputs(b.out)) == 22
        assert {b.value("total", f"k{number}") for number in range(10)} == {2, 4}


def test_successive_crashes_do_not_repeat_finished_records() -> None:
    with bench() as b:
        for number in range(6):
            b.put_quietly(f"k{number}", f"gate{number}" if number % 2 == 0 else number)
        calls.clear()
        for _ in range(3):
            b.run(b.engine.close_tasks(commit=False))
            b.run(b._open())
        b.settle(wait=False)
        open_gate(b, "gate2")
        for _ in range(2):
            b.run(b.engine.close_tasks(commit=True))
            b.run(b._open())
            b.settle(wait=False)
        assert calls == [("k0", "gate0"), ("k2", "gate2"), ("k4", "gate4")] + [("k0", "gate0"), ("k4", "gate4")] * 2
        for gate in ("gate0", "gate4"):
            open_gate(b, gate)
        assert {b.value("total", f"k{number}") for number in range(6)} == {2}


def test_a_handler_that_fails_after_suspending_has_no_effects() -> None:
    with bench(service={"errors": SKIP}) as b:
        b.put("k", 1)
        before = (b.value("total", "k"), b.value("seen", "k"), b.value("names", "k"), b.timers(b.service, "k"))
        b.changes()
        b.put_quietly("k", "fail")
        open_gate(b, "fail")
        now = (b.value("total", "k"), b.value("seen", "k"), b.value("names", "k"), b.timers(b.service, "k"))
        assert now == before
        assert b.outputs(b.out) == ["1-1", "1-2"]
        b.put("k", 2)
        assert b.value("seen", "k") == [1, 1, 2, 2]


@pytest.mark.parametrize("concurrency", [1, 3])
def test_the_number_of_suspended_handlers_is_limited(concurrency: int) -> None:
    with bench(service={"concurrency": concurrency}) as b:
        for number in range(6):
            b.put_quietly(f"k{number}", f"gate{number}")
        assert len(calls) == concurrency
        for number in range(6):
            open_gate(b, f"gate{number}")
            assert len(calls) == min(6, concurrency + number + 1)
        assert len(b.outputs(b.out)) == 12


async def set_timer(ctx: Context, event: Any) -> None:
    ctx.timers.after(1, name="slow", time="processing")


async def slow(ctx: Context, timer: Timer) -> None:
    calls.append(ctx.key)
    await pass_gate(ctx.key)


def test_suspended_timer_handlers_count_towards_the_limit() -> None:
    with Bench(set_timer, timers={"slow": slow}, service={"concurrency": 2}) as b:
        for number in range(5):
            b.put(f"k{number}")
        b.clock.advance(1)
        b.settle(wait=False)
        assert calls == ["k0", "k1"]
        for number in range(5):
            open_gate(b, f"k{number}")
        assert sorted(calls) == [f"k{number}" for number in range(5)]
        assert [b.timers(b.service, f"k{number}") for number in range(5)] == [[]] * 5


def test_a_full_task_stops_reading_and_resumes_later() -> None:
    with bench(buffer_records=5) as b:
        b.put_quietly("k", "gate")
        b.put_all([("k", number) for number in range(20)], settle=False)
        b.settle(wait=False)
        (task,) = b.engine.tasks.values()
        assert task.full
        b.put_all([("x", number) for number in range(50)], settle=False)
        b.settle(wait=False)
        assert task.dispatcher.buffered + task.invoker.unfinished <= 60
        open_gate(b, "gate")
        b.settle()
        assert b.value("total", "k") == 42
        assert b.value("total", "x") == 100


# -- what handlers may use ---------------------------------------------------------------------------------------------

variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")


async def use_asyncio(ctx: Context, event: Any, kept: ValueState[str | None]) -> None:
    """A time limit, a group of tasks and a context variable; before, or after, the first suspension."""
    if event == "after":
        await asyncio.sleep(0)
    variable.set(ctx.key)
    try:
        async with asyncio.timeout(0):
            await asyncio.sleep(10)
    except TimeoutError:
        kept.value = "timed out"

    async def child() -> str:
        await asyncio.sleep(0)
        return variable.get()

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(child()) for _ in range(2)]
    kept.value = f"{kept.value} {tasks[0].result()} {variable.get()}"


@pytest.mark.parametrize("event", ["before", "after"])
def test_handlers_may_use_time_limits_task_groups_and_context_variables(event: str) -> None:
    with Bench(use_asyncio) as b:
        for key in "abc":
            b.put(key, event, settle=False)
        b.settle()
        assert [b.value("kept", key) for key in "abc"] == [f"timed out {key} {key}" for key in "abc"]


# -- shutting down -----------------------------------------------------------------------------------------------------


async def clean_up(ctx: Context, event: Any, kept: ValueState[str | None]) -> None:
    kept.value = "half"
    try:
        await asyncio.sleep(10)
    except asyncio.CancelledError:
        calls.append("cancelled")
        if event == "raise":
            raise
        if event == "other":
            raise ValueError("instead") from None
    finally:
        calls.append("cleaned up")


@pytest.mark.parametrize("event", ["raise", "other", "finish"])
def test_handlers_that_wait_are_cancelled_at_shutdown_and_had_no_effect(event: str) -> None:
    with Bench(clean_up) as b:
        b.put_quietly("k", event)
        b.run(b.engine.close_tasks(commit=True))
        assert calls == ["cancelled", "cleaned up"]
        b.run(b._open())
        b.settle(wait=False)
        assert b.value("kept", "k") is None
        assert b.marker.inputs["events:0"].unfinished == [0]


async def slow_to_go(ctx: Context, event: Any) -> None:
    try:
        await asyncio.sleep(10)
    finally:
        await asyncio.sleep(0.05)
        calls.append(ctx.key)


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("what", ["value", "map", "timer", "emit"])
def test_a_finished_handlers_background_task_cannot_touch_another_key(what: str, waits: bool) -> None:
    errors: list[BaseException] = []
    tasks: list[asyncio.Task[None]] = []

    async def careless(
        ctx: Context, event: str, total: Annotated[ValueState[int], Default(0)], names: MapState[str, int]
    ) -> None:
        async def behind() -> None:
            await pass_gate("behind")
            try:
                match what:
                    case "value":
                        total.value = 77
                    case "map":
                        names["x"] = 77
                    case "timer":
                        ctx.timers.after(60, name="later")
                    case "emit":
                        ctx.emit(77)
            except HandlerOverError as error:
                errors.append(error)

        if event == "leave":
            tasks.append(asyncio.create_task(behind()))
        if waits:
            await asyncio.sleep(0)
        total.value += 1
        names["n"] = 1
        ctx.emit(event)

    with Bench(careless, timers={"later": later}) as b:
        b.put("a", "leave")
        b.put("b", "stay")
        open_gate(b, "behind")
        b.put("c", "stay")
        assert len(errors) == 1
        assert [b.value("total", key) for key in "abc"] == [1, 1, 1]
        assert [b.value("names", key) for key in "abc"] == [{"n": 1}] * 3
        assert b.timers(b.service, "b") == []
        assert b.outputs(b.out) == ["leave", "stay", "stay"]


def test_handlers_that_are_cancelled_clean_up_side_by_side() -> None:
    with Bench(slow_to_go) as b:
        b.put_all([(f"k{number}", 0) for number in range(100)], settle=False)
        b.settle(wait=False)
        started = time.monotonic()
        b.run(b.engine.close_tasks(commit=True))
        assert len(calls) == 100
        assert time.monotonic() - started < 2


# -- the class form ----------------------------------------------------------------------------------------------------


class Waiting(ProcessFunction[str, str]):
    kept: ValueState[str | None]

    async def process(self, ctx: Context, event: str) -> None:
        self.kept.value = event
        await pass_gate(event)
        assert self.kept.value == event
        self.kept.value = f"{event} {ctx.key}"


def test_each_overlapping_handler_of_a_class_has_its_own_state_attributes() -> None:
    with Bench(Waiting) as b:
        for key in "abc":
            b.put_quietly(key, f"gate-{key}")
        for key in "bca":
            open_gate(b, f"gate-{key}")
        assert [b.value("kept", key) for key in "abc"] == ["gate-a a", "gate-b b", "gate-c c"]
