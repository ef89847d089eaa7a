"""Event time through two services, in random interleavings with crashes: nothing is late that was in order."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support import Gates
from tidegate import App, Context, MapState, Monotonic, Timer
from tidegate.keys import partition_of
from tidegate.testing import AppHarness

KEYS = [next(key for key in map(str, range(99)) if partition_of(key.encode(), 2) == n) for n in range(2)]

late: list[Any] = []
gates = Gates()


def build(*, partitions: int, key_by: bool) -> tuple[App, Any, Any]:
    """start → first → middle → last. Events pass at once, after a gate, or by a timer that may wait at a gate."""
    app = App("app", watermark=Monotonic(idle_after=None))
    start = app.topic("start", partitions=partitions)
    middle = app.topic("middle", partitions=3 if key_by else partitions)

    @app.process(start, to=middle)
    async def first(ctx: Context, event: Any) -> None:
        if ctx.late:
            late.append(("first", event))
        if event["after"]:
            ctx.timers.after(event["after"] / 1000, name=f"{event['id']}:{event['gate']}")
        else:
            await gates.wait(event["gate"])
            ctx.emit({"id": event["id"]})

    @first.on_timer()
    async def emit(ctx: Context, timer: Timer) -> None:
        number, gate = map(int, timer.name.split(":"))
        await gates.wait(gate)
        ctx.emit({"id": number})

    @app.process(middle, key_by=(lambda event: event["id"]) if key_by else None, key_type=int if key_by else str)
    async def last(ctx: Context, event: Any, seen: MapState[int, int], fired: MapState[int, int]) -> None:
        if ctx.late:
            late.append(("last", event, ctx.timestamp, ctx.watermark))
        await gates.wait(event["id"] % 3)
        seen[event["id"]] = seen.get(event["id"], 0) + 1
        ctx.timers.at(ctx.timestamp, name=str(event["id"]))

    @last.on_timer()
    async def due(ctx: Context, timer: Timer, fired: MapState[int, int]) -> None:
        fired[int(timer.name)] = fired.get(int(timer.name), 0) + 1

    return app, start, last


sends = st.tuples(st.just("send"), st.integers(0, 1), st.integers(0, 3), st.integers(0, 4), st.sampled_from([0, 0, 5]))
"""To which partition, how much later than the last one, by which gate (gate 0 is open), with a timer after so long."""
engine_steps = st.sampled_from(["read", "listen", "work", "commit", "settle", "crash", "restart", "turn"])
steps = st.one_of(
    sends,
    sends,
    st.tuples(engine_steps, st.integers(0, 9)),
    st.tuples(engine_steps, st.integers(0, 9)),
    st.tuples(st.just("open"), st.integers(1, 4)),
)


def perform(harness: AppHarness, name: str, number: int) -> None:
    engine = harness.engine
    tasks = list(engine.tasks.values())
    match name:
        case "read":
            harness.run(engine.read_once())
        case "listen":
            harness.run(engine.poll_control(timeout=0))
        case "work":
            harness.run(engine.work_once())
        case "commit":
            harness.run(tasks[number % len(tasks)].commit())
        case "turn":  # all that the first service can do, and then another life, in which the second hears of it first
            perform(harness, "read", 0)
            perform(harness, "work", 0)
            for task in tasks[: number % len(tasks) + 1]:
                harness.run(task.commit())
            perform(harness, "crash", 0)
            perform(harness, "listen", 0)
        case "settle":
            harness.settle(wait=False)
        case "open":
            harness.call(partial(gates.open, number))
        case _:
            harness.run(engine.close_tasks(commit=name == "restart"))
            gates.forget()
            harness.run(harness._open())


def play(script: list[tuple[Any, ...]], *, partitions: int, key_by: bool) -> None:
    late.clear()
    gates.close(but=[0])
    app, start, last = build(partitions=partitions, key_by=key_by)
    now = [1000] * partitions
    sent = 0
    with AppHarness(app) as harness:
        for step in script:
            if step[0] == "send":
                _, partition, later, gate, after = step
                partition %= partitions
                now[partition] += later
                event = {"id": sent, "gate": gate, "after": after}
                harness.send(start, event, key=KEYS[partition], timestamp=now[partition], settle=False)
                sent += 1
            else:
                perform(harness, *step)
        for gate in range(5):
            harness.call(partial(gates.open, gate))
        harness.settle()
        harness.finish()
        assert late == []
        keys = range(sent) if key_by else KEYS
        for state in ("seen", "fired"):
            found = Counter[int]()
            for key in keys:
                found.update(harness.state(last, state, key))
            assert found == Counter(range(sent))


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("ERROR", logger="tidegate")


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(steps, max_size=40), st.integers(1, 2))
def test_nothing_is_late_that_was_in_order(script: list[tuple[Any, ...]], partitions: int) -> None:
    play(script, partitions=partitions, key_by=False)


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(steps, max_size=40), st.integers(1, 2))
def test_nor_through_a_shuffle(script: list[tuple[Any, ...]], partitions: int) -> None:
    play(script, partitions=partitions, key_by=True)
