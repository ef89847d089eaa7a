"""A `def`, an `async def` that awaits nothing and one that awaits: three forms of one handler, with the same effect."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
import pytest

from tests.support import Bench
from tidegate import (
    SKIP,
    App,
    Context,
    Default,
    ListState,
    MapState,
    ProcessFunction,
    TaskInfo,
    Timer,
    ValueState,
    on,
)
from tidegate.functions.declaration.handler_call import bound_handler
from tidegate.testing import AppHarness

FORMS = {"plain": ("def", ""), "async": ("async def", ""), "awaiting": ("async def", "await asyncio.sleep(0)")}


NAMES: dict[str, Any] = {
    "Annotated": Annotated, "Any": Any, "Context": Context, "Default": Default, "ListState": ListState,
    "MapState": MapState, "ProcessFunction": ProcessFunction, "TaskInfo": TaskInfo, "Timer": Timer,
    "ValueState": ValueState, "asyncio": asyncio, "on": on,
}  # fmt: skip
"""What the sources below may name."""


class Ping(msgspec.Struct, frozen=True):
    text: str


def written(source: str, define: str, wait: str) -> Any:
    names = {**globals(), **NAMES}
    exec(source.replace("DEF", define).replace("WAIT", wait or "pass"), names)
    return names["made"]


@pytest.fixture(params=[*FORMS])
def form(request: pytest.FixtureRequest) -> Callable[[str], Any]:
    """Makes of `DEF name(...): ... WAIT ...` the function, or the class, in one of the forms."""
    define, wait = FORMS[request.param]

    def make(source: str) -> Any:
        return written(source, define, wait)

    return make


@pytest.fixture(params=[1, 3], ids=["one partition", "three partitions"])
def partitions(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def check(event: int) -> None:
    if event % 7 == 0:
        raise ValueError("on purpose")


STATELESS = """
DEF made(ctx: Context, event: int):
    WAIT
    check(event)
    ctx.emit([ctx.key, event, ctx.timestamp])
"""
ONE = """
DEF made(ctx: Context, event: int, total: Annotated[ValueState[int], Default(0)]):
    total.value += event
    WAIT
    total.value += 1
    check(event)
    ctx.emit([ctx.key, total.value])
"""
OTHER_ORDER = """
DEF made(total: Annotated[ValueState[int], Default(0)], event: int, ctx: Context):
    total.value += event
    WAIT
    check(event)
    ctx.emit([ctx.key, total.value])
"""
ONE_MUTABLE = """
DEF made(ctx: Context, event: int, seen: Annotated[ValueState[list[int]], Default(factory=list)]):
    seen.value.append(event)
    WAIT
    check(event)
    ctx.emit([ctx.key, list(seen.value)])
"""
SEVERAL = """
DEF made(ctx: Context, event: int, total: Annotated[ValueState[int], Default(0)], last: ListState[int],
         times: MapState[str, int]):
    total.value += event
    last.append(event)
    WAIT
    times[str(event % 3)] = times.get(str(event % 3), 0) + 1
    check(event)
    ctx.emit([ctx.key, total.value, list(last), dict(times.items())])
"""
CLASS = """
class made(ProcessFunction[int, Any]):
    total: Annotated[ValueState[int], Default(0)]
    times: MapState[str, int]

    DEF process(self, ctx, event):
        self.total.value += event
        WAIT
        self.times[str(event % 3)] = event
        check(event)
        ctx.emit([ctx.key, self.total.value, dict(self.times.items())])
"""
HANDLERS = {
    "stateless": STATELESS, "one state": ONE, "another order": OTHER_ORDER, "one mutable state": ONE_MUTABLE,
    "several states": SEVERAL, "class": CLASS,
}  # fmt: skip


def emitted(handler: Any, partitions: int) -> dict[str, list[Any]]:
    """What is emitted per key, with a restart in between; every seventh event fails halfway."""
    with Bench(handler, service={"errors": SKIP}, partitions=partitions) as bench:
        for start in (0, 60):
            bench.put_all((f"k{number % 5}", number) for number in range(start, start + 60))
            bench.restart()
        found: dict[str, list[Any]] = {}
        for record in bench.records(bench.out):
            found.setdefault(record.value[0], []).append(record.value[1:])
        return found


@pytest.mark.parametrize("source", HANDLERS.values(), ids=HANDLERS)
def test_every_handler_form_has_the_same_effects(source: str, form: Callable[[str], Any], partitions: int) -> None:
    suspending = written(source, "async def", "await asyncio.sleep(0.0001)")
    assert emitted(form(source), partitions) == emitted(suspending, partitions)


TIMED = """
DEF made(ctx: Context, event: int, total: Annotated[ValueState[int], Default(0)]):
    total.value += event
    WAIT
    ctx.timers.after(5, name="later", time="processing")
"""
FIRED = """
DEF made(ctx: Context, timer: Timer, total: Annotated[ValueState[int], Default(0)]):
    WAIT
    ctx.emit([timer.name, ctx.key, total.value])
    total.value = 0
"""


def test_timers_take_each_form(form: Callable[[str], Any]) -> None:
    with Bench(form(TIMED), timers={"later": form(FIRED)}) as bench:
        bench.put_all([("a", 1), ("b", 2), ("a", 3)])
        bench.advance(seconds=6)
        assert sorted(bench.outputs(bench.out)) == [["later", "a", 4], ["later", "b", 2]]
        assert bench.value("total", "a") == 0


MESSAGE = """
DEF made(ctx: Context, message: Ping, texts: Annotated[ValueState[str], Default("")]):
    texts.value += message.text
    WAIT
    if message.text == "!":
        raise ValueError("on purpose")
    ctx.reply(texts.value)
"""
ACTOR = """
class made(ProcessFunction[Any, Any]):
    texts: Annotated[ValueState[str], Default("")]

    @on(Ping)
    DEF ping(self, ctx, message):
        self.texts.value += message.text
        WAIT
        ctx.reply(self.texts.value)
"""


def test_messages_take_each_form(form: Callable[[str], Any]) -> None:
    app = App("asked")
    actor = app.actor("actor", errors=SKIP)
    actor.on(Ping)(form(MESSAGE))
    with AppHarness(app) as harness:
        assert harness.ask(actor, "a", Ping("x")) == "x"
        with pytest.raises(Exception, match="on purpose"):
            harness.ask(actor, "a", Ping("!"))
        assert harness.ask(actor, "a", Ping("y"), idempotency_key="1") == "xy"
        assert harness.ask(actor, "a", Ping("y"), idempotency_key="1") == "xy"
        assert harness.state(actor, "texts", "a") == "xy"


def test_a_class_takes_messages_in_each_form(form: Callable[[str], Any]) -> None:
    app = App("asked")
    actor = app.actor(form(ACTOR), name="actor")
    with AppHarness(app) as harness:
        assert [harness.ask(actor, "a", Ping(text)) for text in "xy"] == ["x", "xy"]


HOOK = """
DEF made(task: TaskInfo):
    WAIT
    doings.append(task.number)
"""
WITH_HOOKS = """
class made(ProcessFunction[Any, Any]):
    DEF open(self, task):
        WAIT
        self.opened = task.number

    DEF close(self):
        WAIT
        doings.append(self.opened)

    DEF process(self, ctx, event):
        ctx.emit(self.opened)
"""
doings: list[Any] = []


def test_hooks_take_each_form(form: Callable[[str], Any]) -> None:
    doings.clear()
    app = App("hooked")
    events = app.topic("events", value_type=int)
    out = app.topic("out", value_type=int)
    service = app.process(events, to=out, name="service")(form(STATELESS))
    service.on_open(form(HOOK))
    service.on_close(form(HOOK))
    app.process(events, to=out, name="other")(form(WITH_HOOKS))
    with AppHarness(app, partitions=2):
        assert doings == [0, 1]
    assert sorted(doings) == [0, 0, 0, 1, 1, 1]


def test_super_may_be_awaited_in_hooks() -> None:
    class Careful(ProcessFunction[Any, Any]):
        async def open(self, task: TaskInfo) -> None:
            await super().open(task)
            self.ready = True

        def close(self) -> None:
            super().close()

        def process(self, ctx: Context, event: Any) -> None:
            ctx.emit(self.ready)

    with Bench(Careful) as bench:
        bench.put("k")
        assert bench.outputs(bench.out) == [True]


async def send_later(event: int) -> None:
    await asyncio.sleep(0)


def forgets_to_await(ctx: Context, event: int, total: Annotated[ValueState[int], Default(0)]) -> Any:
    total.value += 1
    return send_later(event) if event else None


def test_a_plain_handler_that_returns_a_coroutine_fails_with_advice(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Bench(forgets_to_await, service={"errors": SKIP}) as bench:
        bench.put_all([("k", 1), ("k", 0)])
        assert "write the handler as 'async def' and await it there" in caplog.text
        assert bench.value("total", "k") == 1


def test_a_stop_iteration_of_a_plain_handler_is_its_failure(caplog: pytest.LogCaptureFixture) -> None:
    def handle(ctx: Context, event: Any) -> None:
        next(iter(()))

    def fired(ctx: Context) -> None:
        next(iter(()))

    def both(ctx: Context, event: Any) -> None:
        ctx.timers.after(0, name="t", time="processing")

    with Bench(handle, service={"errors": SKIP}) as bench:
        bench.put("k")
        assert "StopIteration" in caplog.text
        caplog.clear()
    with Bench(both, timers={"t": fired}, service={"errors": SKIP}) as bench:
        bench.put("k")
        bench.advance(seconds=1)
        assert "StopIteration" in caplog.text


def test_only_handlers_that_may_suspend_become_coroutines() -> None:
    def plain(ctx: Context, event: Any) -> None: ...

    async def without_await(ctx: Context, event: Any) -> None: ...

    async def awaiting(ctx: Context, event: Any) -> None:
        await asyncio.sleep(0)

    assert bound_handler(plain).direct is plain
    assert bound_handler(without_await).direct is not None
    assert bound_handler(awaiting).direct is None
