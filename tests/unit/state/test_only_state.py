"""The hot loop looks up the entries of a service's only state by itself. Whatever handlers do with it, what comes of it
is the same as in a service that has a second state, where they are looked up when they are used."""

from __future__ import annotations

import asyncio
import random
from typing import Annotated, Any

import pytest

from tests.support import Bench
from tidegate import DEAD_LETTER, SKIP, Context, Default, Monotonic, ValueState
from tidegate.errors import HandlerOverError

Counter = Annotated[ValueState[int], Default(0)]
Script = list[tuple[str, Any]]


async def act(ctx: Context, script: Script, kept: ValueState[Any]) -> None:
    """Do what the event says, and tell what was seen."""
    seen: list[Any] = []
    for doing, value in script:
        match doing:
            case "read":
                seen.append(kept.value)
            case "exists":
                seen.append(kept.exists)
            case "add":
                kept.value = (kept.value or 0) + value
            case "set":
                kept.value = value
            case "clear":
                kept.clear()
            case "timer":
                ctx.timers.at(value, name="ring")
            case "wait":
                await asyncio.sleep(0)
            case "fail":
                raise RuntimeError("on purpose")
    ctx.emit(seen)


async def only_with_default(ctx: Context, script: Any, kept: Counter) -> None:
    await act(ctx, script, kept)


async def beside_another(
    ctx: Context, script: Any, kept: ValueState[int | None], other: ValueState[int | None]
) -> None:
    await act(ctx, script, kept)


async def only(ctx: Context, script: Any, kept: ValueState[int | None]) -> None:
    await act(ctx, script, kept)


async def beside_another_with_default(ctx: Context, script: Any, kept: Counter, other: ValueState[int | None]) -> None:
    await act(ctx, script, kept)


async def ring(ctx: Context) -> None:
    """Far ahead."""


def scripts(rng: random.Random, count: int) -> list[tuple[str, Script]]:
    """Events for few keys: what each handler is to do."""
    doings: list[tuple[str, Any]] = [
        ("read", None), ("read", None), ("exists", None), ("add", 1), ("add", 1000), ("set", 5), ("set", 0),
        ("clear", None), ("wait", None), ("timer", 1 << 40),
    ]  # fmt: skip
    last: list[tuple[str, Any]] = [*[("read", None)] * 6, ("set", None), ("set", "wrong"), ("fail", None)]
    return [(rng.choice("abc"), [*rng.choices(doings, k=rng.randint(0, 5)), rng.choice(last)]) for _ in range(count)]


def results(handler: Any, events: list[tuple[str, Script]], rng: random.Random) -> tuple[list[Any], list[Any]]:
    """What was emitted per key, and what is kept of each, after crashes at random as well."""
    with Bench(handler, service={"errors": SKIP}, app={"partitions": 1}, timers={"ring": ring}) as bench:
        rest = events
        while rest:
            count = rng.randint(1, 40)
            bench.put_all(rest[:count])
            rest = rest[count:]
            if rng.random() < 0.2:
                bench.restart()
        emitted = [(record.key, record.value) for record in bench.records(bench.out)]
        by_key = [[value for key, value in emitted if key == name] for name in "abc"]
        return by_key, [bench.value("kept", name) for name in "abc"]


@pytest.mark.parametrize(
    ("one", "other"),
    [(only, beside_another), (only_with_default, beside_another_with_default)],
    ids=["without a default", "with a default"],
)
@pytest.mark.parametrize("seed", range(12))
def test_an_only_state_becomes_what_it_would_have_become_beside_another(one: Any, other: Any, seed: int) -> None:
    events = scripts(random.Random(seed), 150)
    assert results(one, events, random.Random(seed)) == results(other, events, random.Random(seed))


@pytest.mark.parametrize("wrong", ["text", 1.5, True])
@pytest.mark.parametrize("wait", [False, True])
def test_a_value_of_another_class_is_refused_with_the_record(wrong: Any, wait: bool) -> None:
    async def assign(ctx: Context, event: Any, kept: Counter) -> None:
        kept.value = wrong if event else kept.value + 1
        ctx.emit("done")
        if wait:
            await asyncio.sleep(0)

    with Bench(assign, service={"errors": DEAD_LETTER}) as bench:
        bench.put_all([("ann", event) for event in (0, 0, 1, 0)])
        assert bench.value("kept", "ann") == 3
        assert [letter.error for letter in bench.dead_letters(bench.service)] == [
            f"state 'kept' holds int, not {type(wrong).__name__}"
        ]
        assert len(bench.records(bench.out)) == 3


def test_a_handler_that_fails_leaves_an_only_state_as_it_was() -> None:
    async def fail(ctx: Context, event: Any, kept: Counter) -> None:
        kept.value += 1
        if event:
            raise RuntimeError("on purpose")

    with Bench(fail, service={"errors": SKIP}) as bench:
        bench.put_all([("ann", event) for event in (0, 0, 1, 1, 0)])
        assert bench.value("kept", "ann") == 3


def test_a_timer_does_not_see_what_was_looked_up_for_a_record_of_another_key() -> None:
    async def count(ctx: Context, event: Any, kept: Counter) -> None:
        kept.value += event
        if event == 1:
            ctx.timers.at(10, name="ring")

    async def ring(ctx: Context, kept: Counter) -> None:
        ctx.emit(kept.value)

    topic = {"watermark": Monotonic()}
    with Bench(count, timers={"ring": ring}, topic=topic, app={"partitions": 1}, now=0) as bench:
        bench.put_all([("ann", 1), ("bob", 1), ("cid", 5)], timestamp=1)
        bench.put_all([("ann", 70), ("bob", 900)], timestamp=2)
        bench.put_all([("cid", 5), ("bob", 0)], timestamp=1000)
        assert sorted((record.key, record.value) for record in bench.records(bench.out)) == [("ann", 71), ("bob", 901)]


def test_a_finished_handlers_background_task_cannot_touch_state_looked_up_for_others() -> None:
    failures: list[BaseException] = []

    async def later(kept: Counter) -> None:
        try:
            kept.value = 1_000_000
        except HandlerOverError as error:
            failures.append(error)

    async def leave(ctx: Context, event: Any, kept: Counter) -> None:
        kept.value += 1
        if event:
            leftover.append(asyncio.ensure_future(later(kept)))

    leftover: list[asyncio.Future[None]] = []
    with Bench(leave, app={"partitions": 1}) as bench:
        bench.put_all([("ann", 0), ("ann", 1), ("bob", 0), ("bob", 0)])
        bench.put_all([("ann", 0), ("bob", 0)])
        assert (bench.value("kept", "ann"), bench.value("kept", "bob")) == (3, 3)
    assert len(failures) == 1
