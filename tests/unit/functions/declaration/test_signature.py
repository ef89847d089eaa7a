"""A handler's signature says what it is given: the context, the event, and its states."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Annotated, Any, Protocol

import msgspec
import pytest

from tests.support import Bench
from tidegate import (
    TTL,
    App,
    Context,
    Default,
    ListState,
    MapState,
    ProcessFunction,
    Redistribute,
    Reduce,
    Timer,
    ValueState,
)
from tidegate.errors import DefinitionError
from tidegate.functions.declaration.signature import read_signature
from tidegate.testing import AppHarness


class Event(msgspec.Struct, frozen=True):
    name: str


def read(handler: Any, event: str = "event") -> Any:
    return read_signature(handler, {}, event=event)


def test_parameters_are_distinguished_by_their_annotations() -> None:
    async def handler(ctx: Context, event: Event, seen: ValueState[int], names: MapState[str, float]) -> None: ...

    signature = read(handler)
    assert signature.event_type is Event
    assert [(state.name, state.kind, state.codec.type) for state in signature.states] == [
        ("seen", "value", int),
        ("names", "map", float),
    ]
    assert signature.states[1].key_type is str


def test_options_ride_on_annotated() -> None:
    async def handler(
        ctx: Context, event: Any, seen: Annotated[ValueState[int], Default(3), TTL(days=1), "unrelated"]
    ) -> None: ...

    (state,) = read(handler).states
    assert state.default == Default(3)
    assert state.ttl == TTL(hours=24)


def test_the_usual_order_costs_no_extra_call() -> None:
    async def handler(ctx: Context, event: Any, seen: ValueState[int]) -> None: ...

    assert read(handler).call is handler


async def mixed(items: ListState[int], event: int, ctx: Context, total: ValueState[int | None]) -> None:
    items.append(event)
    total.value = (total.value or 0) + event
    ctx.emit([ctx.key, event, list(items)])


async def without_context(event: int, total: ValueState[int | None]) -> None:
    total.value = event


async def untyped(ctx, event, total: ValueState[int | None]) -> None:  # type: ignore[no-untyped-def]
    total.value = event
    ctx.emit(event)


def test_any_order_works() -> None:
    with Bench(mixed) as bench:
        bench.put("k", 1)
        bench.put("k", 2)
        assert bench.outputs(bench.out) == [["k", 1, [1]], ["k", 2, [1, 2]]]
        assert bench.value("total", "k") == 3


def test_a_handler_need_not_take_the_context() -> None:
    with Bench(without_context) as bench:
        bench.put("k", 7)
        assert bench.value("total", "k") == 7


def test_a_context_without_annotation_is_known_by_its_name() -> None:
    with Bench(untyped) as bench:
        bench.put("k", 7)
        assert bench.outputs(bench.out) == [7]
        assert bench.value("total", "k") == 7


def test_annotations_may_name_local_types_of_the_caller() -> None:
    class Local(msgspec.Struct, frozen=True):
        name: str

    app = App("app")
    events = app.topic("events")

    @app.process(events)
    async def service(ctx: Context, event: Local, last: ValueState[Local | None]) -> None:
        last.value = event

    with AppHarness(app) as harness:
        harness.send(events, Local("x"), key="k")
        assert harness.state(service, "last", "k") == Local("x")


def test_a_topic_without_a_type_takes_the_handlers() -> None:
    seen: list[Any] = []

    async def handler(ctx: Context, event: Event) -> None:
        seen.append(event)

    with Bench(handler) as bench:
        bench.send_raw(bench.events, key=b"k", value=b'{"name":"x"}')
        assert seen == [Event("x")]


async def takes_event(ctx: Context, event: Event) -> None: ...


async def takes_either(ctx: Context, event: Event | str) -> None: ...


async def takes_float(ctx: Context, event: float) -> None: ...


async def takes_mapping(ctx: Context, event: Mapping[str, Any]) -> None: ...


async def takes_named(ctx: Context, event: Named) -> None: ...


async def takes_one_of_its_own(ctx: Context, event: Own) -> None: ...


class Own(Event, frozen=True):
    """More than the topic says."""


class Named(Protocol):
    name: str


@pytest.mark.parametrize(
    ("handler", "value_type"), [(takes_event, dict[str, str]), (takes_event, str), (takes_either, int)]
)
def test_a_handler_that_expects_another_type_than_its_topics_is_refused(handler: Any, value_type: Any) -> None:
    with pytest.raises(DefinitionError, match="topic 'events' holds"):
        Bench(handler, topic={"value_type": value_type})


@pytest.mark.parametrize(
    ("handler", "value_type"),
    [
        (takes_event, Event),
        (takes_event, Event | None),
        (takes_either, str),
        (takes_float, int),
        (takes_mapping, dict[str, int]),
        (takes_named, Event),
        (takes_one_of_its_own, Event),
    ],
)
def test_a_handler_may_expect_more_or_less_than_its_topics_type(handler: Any, value_type: Any) -> None:
    (topic,) = Bench(handler, topic={"value_type": value_type}).service.definition.topics
    assert topic.codec.type == value_type


# -- what is refused, with a message that helps ------------------------------------------------------------------------


def plain(ctx: Context, event: Any) -> None: ...


@functools.wraps(takes_event)
def plain_wrapper(*arguments: Any) -> Any:
    return takes_event(*arguments)


def plain_generator(ctx: Context, event: Any) -> Any:
    yield event


async def generator(ctx: Context, event: Any) -> Any:
    yield 1


async def star(ctx: Context, *events: Any) -> None: ...


async def keyword(ctx: Context, event: Any, *, seen: ValueState[int]) -> None: ...


async def two_events(ctx: Context, event: Any, other: Any) -> None: ...


async def no_event(ctx: Context, seen: ValueState[int]) -> None: ...


async def unknown_name(ctx: Context, event: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821


async def unstorable(ctx: Context, event: Any, seen: ValueState[type]) -> None: ...


async def unstorable_key(ctx: Context, event: Any, seen: MapState[type, int]) -> None: ...


async def python_default(ctx: Context, event: Any, seen: ValueState[int] = 0) -> None: ...  # type: ignore[assignment]


async def other_default(ctx: Context, event: Any, seen: Annotated[ValueState[int], Default("none")]) -> None: ...


async def other_entry(ctx: Context, event: Any, seen: Annotated[MapState[str, int], Default("none")]) -> None: ...


async def without_brackets(ctx: Context, event: Any, seen: Annotated[ValueState[int], TTL]) -> None: ...


async def lists_default(ctx: Context, event: Any, seen: Annotated[ListState[int], Default(0)]) -> None: ...


async def reduced_value(ctx: Context, event: Any, seen: Annotated[ValueState[int], Reduce(max)]) -> None: ...


async def dealt_value(ctx: Context, event: Any, seen: Annotated[ValueState[int], Redistribute()]) -> None: ...


async def result(ctx: Context, event: Any) -> int:
    return 1


REFUSED = {
    "no function": (3, r"write 'def handler\("),
    "a plain wrapper around an async function": (plain_wrapper, "write the wrapper as 'async def'"),
    "a generator": (plain_generator, r"yields.*ctx\.emit"),
    "an async generator": (generator, r"yields.*ctx\.emit"),
    "star arguments": (star, "events"),
    "keyword only": (keyword, "seen"),
    "two events": (two_events, "parameter 'other' is neither"),
    "no event": (no_event, "takes no event"),
    "unknown annotation": (unknown_name, "Missing"),
    "a type that cannot be stored": (unstorable, "cannot be stored"),
    "a key that cannot be stored": (unstorable_key, "cannot be stored"),
    "a default outside of the annotation": (python_default, r"Default\(0\)"),
    "a default of another type": (other_default, "'seen' has values of type int: 'none' cannot be its default"),
    "an entry's default of another type": (other_entry, "'seen' has values of type int"),
    "an option without its brackets": (without_brackets, r"'seen': .*TTL\(\.\.\.\)"),
    "a default of a list": (lists_default, "'seen': Default is for ValueState and MapState"),
    "an option of another kind": (reduced_value, "'seen': Reduce is for ReducingState"),
    "an option of operator states": (dealt_value, "'seen': Redistribute is for OperatorState"),
    "a result": (result, r"returns int.*ctx\.emit"),
    "not a function": (functools.partial(two_events, other=1), "partial"),
}


@pytest.mark.parametrize(("handler", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_a_handler_that_makes_no_sense_is_refused_where_it_is_declared(handler: Any, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        Bench(handler)


# -- what a context says ----------------------------------------------------------------------------------------------


def test_a_context_may_declare_the_key_type() -> None:
    async def handler(ctx: Context[int], event: str) -> None:
        ctx.emit(ctx.key + 1)

    async def fired(ctx: Context[int], timer: Timer) -> None: ...

    with Bench(handler, timers={"t": fired}, service={"key_type": int}) as bench:
        bench.put(7, "x")
        assert bench.outputs(bench.out) == [8]


def test_a_context_of_other_keys_is_refused() -> None:
    async def handler(ctx: Context[int], event: str) -> None: ...
    async def plain(ctx: Context, event: str) -> None: ...
    async def fired(ctx: Context[bytes], timer: Timer) -> None: ...
    async def told(ctx: Context[int], message: str) -> None: ...

    class Numbered(ProcessFunction[str, None]):
        async def process(self, ctx: Context[int], event: str) -> None: ...

    with pytest.raises(DefinitionError, match=r"Context\[int\].*keys are of str: write Context\[str\].*key_type=int"):
        Bench(handler)
    with pytest.raises(DefinitionError, match=r"Context\[bytes\].*keys are of str"):
        Bench(plain, timers={"t": fired})
    with pytest.raises(DefinitionError, match=r"Context\[int\].*keys are of str"):
        Bench(plain).service.on(str)(told)
    with pytest.raises(DefinitionError, match=r"Numbered.process takes a Context\[int\].*keys are of str"):
        Bench(Numbered)


# -- timers ------------------------------------------------------------------------------------------------------------


async def process(ctx: Context, event: Any, seen: ValueState[int | None]) -> None: ...


async def with_event(ctx: Context, event: Event) -> None: ...


async def other_state(ctx: Context, timer: Timer, seen: ValueState[str]) -> None: ...


def test_a_timers_handler_takes_a_timer_not_an_event() -> None:
    with pytest.raises(DefinitionError, match="Timer"):
        Bench(process, timers={"t": with_event})


def test_a_state_is_declared_in_one_way_only() -> None:
    with pytest.raises(DefinitionError, match="'seen' is declared in two different ways"):
        Bench(process, timers={"t": other_state})


def test_on_timer_without_its_parentheses_is_refused() -> None:
    with Bench(process) as bench, pytest.raises(DefinitionError, match="parentheses"):
        bench.service.on_timer(with_event)  # type: ignore[arg-type]


def test_a_timer_has_one_handler() -> None:
    async def one(ctx: Context) -> None: ...
    async def two(ctx: Context) -> None: ...

    bench = Bench(process, timers={"t": one})
    with pytest.raises(DefinitionError, match="'t'"):
        bench.service.on_timer("t")(two)


def test_a_timers_handler_may_declare_states_of_its_own() -> None:
    async def set_timer(ctx: Context, event: Any) -> None:
        ctx.timers.after(1, name="t")

    async def fired(ctx: Context, times: Annotated[ValueState[int], Default(0)]) -> None:
        times.value += 1

    with Bench(set_timer, timers={"t": fired}) as bench:
        bench.put("k")
        bench.finish()
        assert bench.value("times", "k") == 1


def test_a_service_can_be_called_like_its_function() -> None:
    calls: list[Any] = []

    async def handler(ctx: Context, event: Any) -> None:
        """What it does."""
        calls.append((ctx, event))

    bench = Bench(handler)
    coroutine = bench.service("ctx", 5)
    with pytest.raises(StopIteration):
        coroutine.send(None)
    assert calls == [("ctx", 5)]
    assert bench.service.__doc__ == "What it does."
    assert repr(bench.service) == "<Service service>"
