from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, replace
from typing import Any

import pytest

from tidegate import App, Context, ProcessFunction, Timer, ValueState
from tidegate.codecs import codec_for
from tidegate.errors import DefinitionError
from tidegate.functions.declaration.handler_spec import HandlerSpec
from tidegate.functions.declaration.signature import read_signature
from tidegate.functions.definition import ExecutionSpec, InputSpec, ServiceDefinition
from tidegate.functions.topics import TopicDefinition
from tidegate.host.app_definition import AppDefinition
from tidegate.keys import partition_of
from tidegate.testing import AppHarness


async def takes_anything(ctx: Context, event: Any, kept: ValueState[int | None]) -> None: ...


async def on_timer(ctx: Context, timer: Timer, seen: ValueState[str | None]) -> None: ...


def test_a_definition_cannot_be_changed() -> None:
    app = App("app")
    service = app.process(app.topic("t"))(takes_anything)
    definition = service.definition
    with pytest.raises(FrozenInstanceError):
        definition.name = "other"  # type: ignore[misc]
    with pytest.raises(TypeError):
        definition.states["more"] = definition.states["kept"]  # type: ignore[index]
    with pytest.raises(TypeError):
        definition.timers[None] = HandlerSpec()  # type: ignore[index]


def test_a_declaration_makes_a_new_definition() -> None:
    app = App("app")
    service = app.process(app.topic("t"))(takes_anything)
    before = service.definition
    service.on_timer("t")(on_timer)
    assert list(before.timers) == []
    assert list(before.states) == ["kept"]
    assert list(service.definition.timers) == ["t"]
    assert list(service.definition.states) == ["kept", "seen"]


@pytest.mark.parametrize("verb", ["on_timer", "on", "on_open", "on_close"])
def test_a_declaration_after_the_app_was_planned_is_refused(verb: str) -> None:
    app = App("app")
    service = app.process(app.topic("t"))(takes_anything)

    async def on_message(ctx: Context, message: int) -> None: ...

    async def hook(task: Any) -> None: ...

    app.define()
    declare: dict[str, Callable[[], object]] = {
        "on_timer": lambda: service.on_timer("t")(on_timer),
        "on": lambda: service.on(int)(on_message),
        "on_open": lambda: service.on_open(hook),
        "on_close": lambda: service.on_close(hook),
    }
    with pytest.raises(DefinitionError, match=rf"@takes_anything\.{verb} comes too late.*before the app starts"):
        declare[verb]()


def test_a_class_handles_timers_only_if_it_has_the_method() -> None:
    class Without(ProcessFunction[Any, Any]):
        async def process(self, ctx: Context, event: Any) -> None: ...

    class With(Without):
        async def on_timer(self, ctx: Context, timer: Timer) -> None: ...

    app = App("app")
    topic = app.topic("t")
    assert not app.process(topic)(Without).definition.handles_timer("t")
    assert app.process(topic)(With).definition.handles_timer("t")


# -- an input has its own handler --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Clicks:
    count: int


def topic(name: str, type_: Any, **options: Any) -> TopicDefinition:
    return TopicDefinition(name=name, codec=codec_for(type_), partitions=2, **options)


async def add_clicks(ctx: Context, clicks: Clicks, total: ValueState[int | None]) -> None:
    total.value = (total.value or 0) + clicks.count


async def rename(ctx: Context, name: str, label: ValueState[str | None]) -> None:
    label.value = name


async def ring(ctx: Context, bell: int) -> None:
    ctx.emit(f"{ctx.key} rings {bell}")


@dataclass(frozen=True)
class Planned:
    definition: AppDefinition

    def define(self) -> AppDefinition:
        return self.definition


def with_handlers(*handlers: tuple[TopicDefinition, Any], out: TopicDefinition, **options: Any) -> AppDefinition:
    read = [(topic, read_signature(handler, {}, event="event")) for topic, handler in handlers]
    states = {state.name: state for _, signature in read for state in signature.states}
    service = ServiceDefinition(
        name="service",
        inputs=tuple(InputSpec(topic=topic, handler=signature.handler) for topic, signature in read),
        outputs={out.name: out},
        states=states,
        **options,
    )
    return AppDefinition(id="app", services=(service,), topics=(*(topic for topic, _ in handlers), out), options={})


OUT = topic("out", str)


@pytest.mark.parametrize("parallelism", [None, 3], ids=["direct", "behind shuffles"])
def test_each_input_has_its_own_handler_with_its_own_states_and_event_type(parallelism: int | None) -> None:
    clicks, names, bells = topic("clicks", Clicks), topic("names", str), topic("bells", int)
    handlers = ((clicks, add_clicks), (names, rename), (bells, ring))
    definition = with_handlers(*handlers, out=OUT, execution=ExecutionSpec(parallelism=parallelism))
    with AppHarness(Planned(definition)) as harness:
        for number in range(6):
            harness.send("clicks", Clicks(number), key="a")
            harness.send("names", f"name {number}", key="b" if number % 2 else "a")
            harness.send("bells", number, key="b")
        harness.crash()
        assert harness.state("service", "total", "a") == 15
        assert harness.state("service", "label", "a") == "name 4"
        assert harness.state("service", "label", "b") == "name 5"
        assert harness.outputs("out") == [f"b rings {number}" for number in range(6)]


def test_an_input_whose_handler_takes_no_state_beside_one_that_takes_the_only_state() -> None:
    """The only state of a service is lent to handlers as a plain value: only to those which take it."""
    clicks, bells = topic("clicks", Clicks), topic("bells", int)
    with AppHarness(Planned(with_handlers((clicks, add_clicks), (bells, ring), out=OUT))) as harness:
        for number in range(4):
            harness.send("clicks", Clicks(1), key="a")
            harness.send("bells", number, key="a")
        assert harness.state("service", "total", "a") == 4
        assert len(harness.outputs("out")) == 4


def test_keys_belong_where_the_inputs_that_are_not_broadcast_say() -> None:
    rules = InputSpec(topic=topic("rules", str), handler=HandlerSpec(function=rename), broadcast=True)
    clicks = InputSpec(topic=replace(topic("clicks", Clicks), partitions=7), handler=HandlerSpec(function=add_clicks))
    service = ServiceDefinition(name="service", inputs=(rules, clicks), outputs={})
    assert service.tasks == 7
    assert service.task_for(b"key") == partition_of(b"key", 7)


def test_a_service_of_broadcast_inputs_alone_has_no_place_for_keys() -> None:
    rules = InputSpec(topic=topic("rules", str), handler=HandlerSpec(function=rename), broadcast=True)
    with pytest.raises(DefinitionError, match="has only broadcast inputs"):
        _ = ServiceDefinition(name="service", inputs=(rules,), outputs={}).tasks
