"""ProcessFunction: the class form, the same as a function with more room."""

from __future__ import annotations

import functools
from typing import Annotated, Any, Generic, TypeVar

import msgspec
import pytest

from tests.support import Bench
from tidegate import App, Context, Default, MapState, ProcessFunction, TaskInfo, Timer, ValueState
from tidegate.errors import DefinitionError, ServiceFailedError
from tidegate.testing import AppHarness

log: list[Any] = []


@pytest.fixture(autouse=True)
def _empty_log() -> None:
    log.clear()


class Click(msgspec.Struct, frozen=True):
    page: str


class Count(ProcessFunction[Click, int]):
    seen: Annotated[ValueState[int], Default(0)]
    pages: MapState[str, int]
    label = "a plain attribute"

    def __init__(self, step: int = 1) -> None:
        self.step = step

    async def process(self, ctx: Context, event: Click) -> None:
        self.seen.value += self.step
        self.pages[event.page] = self.seen.value
        ctx.emit(self.seen.value)


def test_states_are_attributes() -> None:
    with Bench(Count) as bench:
        bench.put("k", Click("a"))
        bench.put("k", Click("b"))
        assert bench.outputs(bench.out) == [1, 2]
        bench.restart()
        assert bench.value("pages", "k") == {"a": 1, "b": 2}


def test_an_instance_with_parameters_works_too() -> None:
    with Bench(Count(step=10)) as bench:
        bench.put("k", Click("a"))
        assert bench.outputs(bench.out) == [10]


def test_the_event_type_comes_from_the_class() -> None:
    with Bench(Count) as bench:
        bench.send_raw(bench.events, key=b"k", value=b'{"page":"x"}')
        assert bench.value("pages", "k") == {"x": 1}


def test_its_name_is_the_classes_in_snake_case() -> None:
    app = App("app")
    events = app.topic("events")

    @app.process(events)
    class ClickCounter(ProcessFunction[Click, int]):
        async def process(self, ctx: Context, event: Click) -> None: ...

    assert list(app.services) == ["click_counter"]


class Opened(ProcessFunction[Any, Any]):
    async def open(self, task: TaskInfo) -> None:
        log.append(("open", task.service, task.number))
        self.shared: list[Any] = []

    async def close(self) -> None:
        log.append(("close", len(self.shared)))

    async def process(self, ctx: Context, event: Any) -> None:
        self.shared.append(event)


def test_resources_from_open_are_shared_by_all_handlers_of_a_task() -> None:
    with Bench(Opened, partitions=2) as bench:
        for number in range(10):
            bench.put(str(number), number)
        assert sorted(log) == [("open", "service", 0), ("open", "service", 1)]
    closed = [entry for entry in log if entry[0] == "close"]
    assert sum(count for _, count in closed) == 10


class Unclosable(ProcessFunction[Any, Any]):
    seen: ValueState[int | None]

    async def close(self) -> None:
        raise RuntimeError("the client hangs")

    async def process(self, ctx: Context, event: Any) -> None:
        self.seen.value = event


def test_a_failed_close_is_reported_and_loses_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with Bench(Unclosable) as bench:
        bench.put("k", 3)
        bench.restart()
        assert caplog.messages == ["service.0: its close failed: RuntimeError: the client hangs"]
        assert bench.value("seen", "k") == 3


class Base(ProcessFunction[Any, Any]):
    seen: Annotated[ValueState[int], Default(0)]

    async def process(self, ctx: Context, event: Any) -> None:
        self.seen.value += 1
        await self.after(ctx, event)

    async def after(self, ctx: Context, event: Any) -> None: ...


class Derived(Base):
    last: ValueState[int | None]

    async def after(self, ctx: Context, event: Any) -> None:
        self.last.value = event


def test_states_are_inherited() -> None:
    with Bench(Derived) as bench:
        bench.put("k", 5)
        assert (bench.value("seen", "k"), bench.value("last", "k")) == (1, 5)


E = TypeVar("E")


class Keep(ProcessFunction[E, E], Generic[E]):
    async def process(self, ctx: Context, event: E) -> None:
        log.append(event)


class KeepClicks(Keep[Click]):
    pass


def test_a_generic_function_takes_its_topics_type() -> None:
    with Bench(KeepClicks, topic={"value_type": Click}) as bench:
        bench.put("k", Click("a"))
        assert log == [Click("a")]


class Timed(ProcessFunction[int, int]):
    async def process(self, ctx: Context, event: int) -> None:
        ctx.timers.at(event, name="t")

    async def on_timer(self, ctx: Context, timer: Timer) -> None:
        log.append((ctx.key, timer.name, timer.at))


def test_its_timers_come_to_on_timer() -> None:
    with Bench(Timed) as bench:
        bench.put("k", 5)
        bench.finish()
        assert log == [("k", "t", 5)]


class Untimed(ProcessFunction[int, int]):
    async def process(self, ctx: Context, event: int) -> None:
        ctx.timers.at(event, name="t")


def test_without_on_timer_it_cannot_set_timers() -> None:
    with Bench(Untimed) as bench, pytest.raises(Exception, match="no handler is registered for"):
        bench.put("k", 5)


class PlainWrapper(ProcessFunction[int, int]):
    async def awaits(self, ctx: Context, event: int) -> None: ...

    @functools.wraps(awaits)
    def process(self, *arguments: Any) -> Any:  # type: ignore[override]
        return self.awaits(*arguments)


class TimerWithoutTimer(ProcessFunction[int, int]):
    async def process(self, ctx: Context, event: int) -> None: ...

    def on_timer(self, ctx: Context) -> None: ...  # type: ignore[override]


class Nothing(ProcessFunction[int, int]):
    pass


class Yielding(ProcessFunction[int, int]):
    async def process(self, ctx: Context, event: int) -> Any:
        yield event


class Returning(ProcessFunction[int, int]):
    async def process(self, ctx: Context, event: int) -> int:
        return event


class ReturningAtATime(ProcessFunction[int, int]):
    async def process(self, ctx: Context, event: int) -> None: ...

    async def on_timer(self, ctx: Context, timer: Timer) -> int:
        return timer.at


class StateAsParameter(ProcessFunction[int, int]):
    async def process(self, ctx: Context, event: int, seen: ValueState[int]) -> None: ...  # type: ignore[override]


class WithoutContext(ProcessFunction[int, int]):
    async def process(self, event: int) -> None: ...  # type: ignore[override]


class PlainDefault(ProcessFunction[int, int]):
    seen: ValueState[int] = 0  # type: ignore[assignment]

    async def process(self, ctx: Context, event: int) -> None: ...


class NotOne:
    async def process(self, ctx: Context, event: int) -> None: ...


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (PlainWrapper, "write the wrapper as 'async def'"),
        (TimerWithoutTimer, r"def on_timer\(self, ctx, timer\)"),
        (Nothing, "def process"),
        (Yielding, r"yields.*ctx\.emit"),
        (Returning, r"returns int.*ctx\.emit"),
        (ReturningAtATime, r"on_timer returns int"),
        (StateAsParameter, r"def process\(self, ctx, event\).*annotated attributes"),
        (WithoutContext, r"def process\(self, ctx, event\)"),
        (PlainDefault, r"'seen'.*Default\(0\)"),
        (NotOne, "must derive from ProcessFunction"),
    ],
)
def test_a_class_that_makes_no_sense_is_refused_where_it_is_declared(wrong: Any, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        Bench(wrong)


class Assigning(ProcessFunction[int, int]):
    seen: Annotated[ValueState[int], Default(0)]

    async def process(self, ctx: Context, event: int) -> None:
        self.seen = event  # type: ignore[assignment]


def test_a_value_does_not_take_the_place_of_a_state() -> None:
    with Bench(Assigning) as bench:
        with pytest.raises(ServiceFailedError, match=r"Assigning\.seen is a state.*self\.seen\.value"):
            bench.put("k", 3)
        assert bench.value("seen", "k") is None


class AssigningEarly(ProcessFunction[int, int]):
    seen: ValueState[int | None]

    async def open(self, task: TaskInfo) -> None:
        self.seen = 3  # type: ignore[assignment]

    async def process(self, ctx: Context, event: int) -> None: ...


def test_neither_does_one_that_is_assigned_before_there_are_states() -> None:
    with pytest.raises(DefinitionError, match=r"AssigningEarly\.seen is a state.*Default"), Bench(AssigningEarly):
        pass


class Hasty(ProcessFunction[int, int]):
    seen: ValueState[int | None]

    async def open(self, task: TaskInfo) -> None:
        self.seen.value = 3

    async def process(self, ctx: Context, event: int) -> None: ...


def test_using_state_in_open_gives_an_error_about_keys() -> None:
    with pytest.raises(AttributeError, match=r"'seen'.*belongs to a key"), Bench(Hasty):
        pass


def test_an_attribute_that_is_missing_is_missing() -> None:
    with pytest.raises(AttributeError, match="'Count' object has no attribute 'other'"):
        Count().other  # type: ignore[attr-defined]  # noqa: B018


def test_an_object_is_named_as_its_class_is() -> None:
    app = App("app")
    app.process(app.topic("events"))(Count(step=3))
    assert list(app.services) == ["count"]


@pytest.mark.parametrize("hook", ["on_timer", "on_open", "on_close"])
def test_the_decorators_are_for_functions(hook: str) -> None:
    bench = Bench(Count)

    async def handler(ctx: Context) -> None: ...

    register = getattr(bench.service, hook)
    with pytest.raises(DefinitionError, match="is a class"):
        register("t")(handler) if hook == "on_timer" else register(handler)


def test_an_object_serves_two_apps_without_mixing_them() -> None:
    first, second = Bench(Count), Bench(Count)
    with first:
        first.put("k", Click("a"))
        with_two = first.value("seen", "k")
    with second:
        second.put("k", Click("a"))
        assert with_two == second.value("seen", "k") == 1


def test_two_services_of_one_class_keep_their_own_state() -> None:
    app = App("app")
    events = app.topic("events")
    one = app.process(events, name="one")(Derived)
    two = app.process(events, name="two")(Base)
    with AppHarness(app) as harness:
        harness.send(events, 3, key="k")
        assert harness.state(one, "seen", "k") == harness.state(two, "seen", "k") == 1
