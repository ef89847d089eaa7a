"""App: topics and services are declared once, by names that the log can bear, and checked where they are declared."""

from __future__ import annotations

import dataclasses
import inspect
import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any, TypedDict, assert_type, get_type_hints

import msgspec
import pydantic
import pytest

import tidegate
from tidegate import App, BrokerTime, Context, EventTime, Monotonic, ProcessFunction, Service, Topic, ValueState
from tidegate.declarations import ActorOptions, ProcessOptions, TopicOptions
from tidegate.engine.topology.plan import Plan
from tidegate.errors import DefinitionError, LogUnavailableError
from tidegate.settings import Settings, setting_names
from tidegate.settings_resolution import resolve
from tidegate.testing import AppHarness


class Event(msgspec.Struct, frozen=True):
    name: str


async def nothing(ctx: Context, event: Any) -> None: ...


# -- apps --------------------------------------------------------------------------------------------------------------


def test_an_unknown_option_is_refused_with_a_suggestion() -> None:
    with pytest.raises(DefinitionError, match="'comit_interval'; did you mean 'commit_interval'"):
        App("app", comit_interval=1)  # type: ignore[call-arg]
    with pytest.raises(DefinitionError, match="'colour'; 'tidegate config' lists them"):
        App("app", colour="red")  # type: ignore[call-arg]
    with pytest.raises(DefinitionError, match=r"of Faust, so write App\(..., faust=\{'stream_buffer_maxsize': ...\}\)"):
        App("app", stream_buffer_maxsize=7)  # type: ignore[call-arg]


def test_every_setting_is_a_parameter_of_its_own_with_the_settings_type() -> None:
    parameters = dict(inspect.signature(App).parameters)
    hints = get_type_hints(Settings)
    for own in ("id", "time", "watermark", "faust"):
        del parameters[own]
    assert set(parameters) == set(setting_names())
    for name, parameter in parameters.items():
        assert parameter.kind is inspect.Parameter.KEYWORD_ONLY
        assert parameter.default is None  # not given: the environment, or the default of the setting
        given = eval(parameter.annotation, vars(tidegate.app))
        assert given == ((hints[name] | None) if name != "data" else str | Path | None), name


def test_a_given_setting_applies_and_others_keep_their_defaults() -> None:
    app = App("app", partitions=7, kafka_tls="on", data="here")
    assert app.define().options == {"partitions": 7, "kafka_tls": "on", "data": "here"}
    settings = resolve(app.define().options, environment={}).settings
    assert settings == dataclasses.replace(Settings(), partitions=7, kafka_tls="on", data=Path("here"))


def test_public_names_are_few_annotated_and_documented() -> None:
    names = [name for name in dir(App("app")) if not name.startswith("_")]
    assert len(names) <= 25
    for name in names:
        member = inspect.getattr_static(App, name)
        function = member.fget if isinstance(member, property) else member
        assert inspect.isfunction(function)
        assert inspect.getdoc(function), f"{name} has no docstring"
        signature = inspect.signature(function)
        assert signature.return_annotation is not inspect.Signature.empty, name
        for parameter in list(signature.parameters.values())[1:]:
            assert parameter.annotation is not inspect.Parameter.empty, (name, parameter)


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("Table", "app.faust.Table"),
        ("page", "app.faust.page"),
        ("send", "topic.send"),
        ("send_many", "topic.send_many"),
    ],
)
def test_a_missing_attribute_suggests_the_right_name(name: str, instead: str) -> None:
    app = App("app")
    with pytest.raises(AttributeError, match=re.escape(f"write {instead}")):
        getattr(app, name)
    assert not hasattr(app, "unheard_of")


def test_an_app_of_services_imports_no_faust() -> None:
    """Neither does what declares, tests and starts it; with an agent, a timer or options of Faust's, it is there."""
    script = """
import asyncio, sys, tempfile
import tidegate

app = tidegate.App("light", api="off", data=tempfile.mkdtemp())
words = app.topic("words", value_type=str, key=lambda word: word)
counts = app.topic("counts", value_type=int)

@app.process(words, to=counts)
async def count(ctx: tidegate.Context, word: str, seen: tidegate.ValueState[int | None]) -> None:
    seen.value = (seen.value or 0) + 1
    ctx.emit(seen.value)

def loaded():
    return sorted({"faust", "mode", "tidegate.faust_host"} & set(sys.modules))

assert not [name for name in sys.modules if name.startswith(("tidegate.engine", "tidegate.logs.kafka", "rocksdict"))]
from tidegate.testing import AppHarness
with AppHarness(app) as harness:
    harness.send(words, "a")
    assert harness.outputs(counts) == [1]

async def run():
    await app.start()
    await words.send("b")
    assert await words.send("b") is not None
    await app.stop()
    assert app.failure is None

asyncio.run(run())
assert loaded() == [], loaded()
@app.timer(1.0)
async def tick() -> None: ...
assert loaded() == ["faust", "mode", "tidegate.faust_host"], loaded()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("wrong", [{"time": "at"}, {"watermark": 5}])
def test_an_invalid_timestamp_source_or_strategy_is_refused(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(DefinitionError, match=f"{name}="):
        App("app", **wrong)
    with pytest.raises(DefinitionError, match=f"'t': {name}="):
        App("app").topic("t", **wrong)


# -- topics ------------------------------------------------------------------------------------------------------------


def test_a_topics_definition_reflects_its_declaration() -> None:
    app = App("app", time=EventTime("name"), watermark=Monotonic())
    topic = app.topic("t", value_type=Event, key="name", partitions=3, retention=timedelta(hours=1), retention_bytes=9)
    definition = topic.definition
    assert (topic.name, definition.name, definition.partitions) == ("t", "t", 3)
    assert definition.codec.type is Event
    assert definition.key_of(Event("x")) == b"x"
    assert (definition.retention_ms, definition.retention_bytes) == (3_600_000, 9)
    assert (definition.time, definition.watermark) == (EventTime("name"), Monotonic())
    assert app.topic("u", time=BrokerTime()).definition.spec.append_time
    assert app.topic("v", compact=True).definition.spec.compact
    assert list(app.topics) == ["t", "u", "v"]
    assert app.topics["t"] is topic
    assert (str(topic), repr(app)) == ("<Topic t>", "<App app>")


def test_a_type_in_place_of_a_name_gives_an_error_with_the_right_parameter() -> None:
    with pytest.raises(DefinitionError, match="value_type="):
        App("app").topic("t", Event)  # type: ignore[call-overload]
    with pytest.raises(DefinitionError, match=r"declares one topic"):
        App("app").topic("t", "u")  # type: ignore[call-overload]


def test_type_checkers_infer_a_topics_type() -> None:
    app = App("app")
    assert_type(app.topic("t", value_type=Event, key="name"), Topic[Event])
    assert_type(app.topic("u", value_type=dict[str, int], key=lambda value: value["a"]), Topic[dict[str, int]])
    assert_type(app.topic("v"), Topic[Any])


def test_a_key_may_be_a_field_of_a_dict() -> None:
    assert App("app").topic("t", key="name").definition.key_of({"name": "x"}) == b"x"


class Plain(TypedDict):
    name: str


class Shown(msgspec.Struct):
    first: str

    @property
    def name(self) -> str:
        return self.first


class Model(pydantic.BaseModel):
    name: str


class Open(pydantic.BaseModel, extra="allow"):
    first: str


def test_a_key_field_missing_from_a_pydantic_model_is_refused() -> None:
    with pytest.raises(DefinitionError, match="takes its key from 'nmae', and Model has no such field"):
        App("app").topic("t", value_type=Model, key="nmae")


def test_a_field_that_a_type_does_not_have_is_refused_where_it_is_named() -> None:
    app = App("app")
    topic = app.topic("t", value_type=Event, time=EventTime("nmae"))
    with pytest.raises(DefinitionError, match="takes its key from 'nmae', and Event has no such field"):
        app.topic("u", value_type=Event, key="nmae")
    with pytest.raises(DefinitionError, match="takes its time from 'nmae', and Event has no such field"):
        app.process(topic)(nothing)
    with pytest.raises(DefinitionError, match="key_by= takes the key of 'v' from 'nmae'"):
        app.process(app.topic("v", value_type=Event), key_by="nmae")(nothing)


@pytest.mark.parametrize("value_type", [None, dict[str, str], Plain, Event, Event | None, Shown, Model, Open])
def test_a_field_that_a_type_may_have_is_not_refused(value_type: Any) -> None:
    app = App("app", time=EventTime("name"))
    app.process(app.topic("t", value_type=value_type, key="name"), key_by="name")(nothing)


@pytest.mark.parametrize("name", ["", "a b", "ü", "a/b", ".", "..", "x" * 201])
def test_names_that_a_log_cannot_bear_are_refused(name: str) -> None:
    with pytest.raises(DefinitionError, match="letters"):
        App(name)
    app = App("app")
    with pytest.raises(DefinitionError, match="letters"):
        app.topic(name)
    if name:
        with pytest.raises(DefinitionError, match="letters"):
            app.process(app.topic("t"), name=name)(nothing)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"partitions": 0}, "at least 1, not 0"),
        ({"retention": -1}, "at least 0, which keeps records forever"),
        ({"retention": timedelta(days=-1)}, "at least 0"),
        ({"retention_bytes": -1}, "omit it"),
    ],
)
def test_limits_that_would_remove_records_at_once_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        App("app").topic("t", **wrong)


@pytest.mark.parametrize(("retention", "kept"), [(None, 7_200_000), (60, 60_000), (0, None)])
def test_a_topic_keeps_its_records_for_its_time_else_for_that_of_the_setting(
    retention: float | None, kept: int | None
) -> None:
    app = App("app", retention_hours=2)
    app.topic("t", retention=retention)
    definition = app.define()
    plan = Plan(definition.id, definition.services, definition.topics, definition.resolve().settings, {})
    assert plan.topics["t"].retention_ms == kept


def test_a_topic_is_declared_once() -> None:
    app = App("app")
    app.topic("t")
    with pytest.raises(DefinitionError, match="twice"):
        app.topic("t")


def test_a_type_that_cannot_be_sent_is_refused() -> None:
    with pytest.raises(DefinitionError, match="cannot be stored or sent"):
        App("app").topic("t", value_type=type)


# -- services ----------------------------------------------------------------------------------------------------------


def test_a_service_is_known_by_its_functions_name_or_the_given_one() -> None:
    app = App("app")
    topic = app.topic("t")
    first = app.process(topic)(nothing)
    second = app.process(topic, name="second")(nothing)
    assert isinstance(first, Service)
    assert app.services == {"nothing": first, "second": second}


def test_a_service_is_declared_once() -> None:
    app = App("app")
    topic = app.topic("t")
    app.process(topic)(nothing)
    with pytest.raises(DefinitionError, match="name="):
        app.process(topic)(nothing)


def test_inputs_and_outputs_of_a_service_must_be_topics_of_an_app() -> None:
    app = App("app")
    topic = app.topic("t")
    with pytest.raises(DefinitionError, match="reads no topic"):
        app.process()(nothing)  # type: ignore[call-overload]
    with pytest.raises(DefinitionError, match=r"app\.topic"):
        app.process("t")(nothing)  # type: ignore[call-overload]
    with pytest.raises(DefinitionError, match=r"app\.topic"):
        app.process(topic, to=["t"])(nothing)  # type: ignore[list-item]
    with pytest.raises(DefinitionError, match="emits to 'out'"):
        app.process(topic, to="out")(nothing)  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match="output topic once"):
        app.process(topic, to=[topic, topic])(nothing)
    with pytest.raises(DefinitionError, match="input topic once"):
        app.process(topic, topic)(nothing)


def test_process_without_its_parentheses_is_refused() -> None:
    with pytest.raises(DefinitionError, match="parentheses"):
        App("app").process(nothing)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    "options", [{"concurrency": 0}, {"timeout": 0}, {"timeout": -1}, {"guarantee": "twice"}, {"errors": "skip"}]
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    app = App("app")
    (name,) = options
    with pytest.raises(DefinitionError, match=name):
        app.process(app.topic("t"), **options)(nothing)


@pytest.mark.parametrize(
    ("method", "options", "typed_by_itself"),
    [
        (App.topic, TopicOptions, {"value_type", "key"}),
        (App.process, ProcessOptions, {"key_by"}),
        (App.actor, ActorOptions, {"key_type"}),
    ],
)
def test_the_typed_options_equal_the_existing_options(method: Any, options: Any, typed_by_itself: set[str]) -> None:
    parameters = inspect.signature(method).parameters.values()
    taken = {item.name: item.annotation for item in parameters if item.kind is item.KEYWORD_ONLY}
    seen = {name: hint.__forward_arg__ for name, hint in options.__annotations__.items()}
    assert {name: hint for name, hint in taken.items() if name not in typed_by_itself} == seen


def test_the_key_type_is_the_topics_unless_the_service_declares_one() -> None:
    app = App("app")
    seen: list[Any] = []
    by_number, by_text = app.topic("numbers", key_type=int), app.topic("texts")

    @app.process(by_number)
    async def numbers(ctx: Context, event: Any) -> None:
        seen.append(ctx.key)

    @app.process(by_text, key_type=int)
    async def texts(ctx: Context, event: Any) -> None:
        seen.append(ctx.key)

    with AppHarness(app) as harness:
        harness.send(by_number, 0, key=5)
        harness.send(by_text, 0, key="6")
        assert seen == [5, 6]


def test_a_definition_reflects_the_declarations_so_far() -> None:
    app = App("app", partitions=2)
    topic = app.topic("t")
    assert app.define().services == ()
    app.process(topic)(nothing)
    definition = app.define()
    assert [service.name for service in definition.services] == ["nothing"]
    assert definition.id == "app"
    assert definition.options == {"partitions": 2}
    assert definition.resolve().settings.partitions == 2


async def test_sending_is_refused_while_the_app_is_not_running() -> None:
    app = App("app")
    topic = app.topic("t")
    with pytest.raises(LogUnavailableError, match="not running"):
        await topic.send(value=1, key="k")


def test_every_public_name_is_there() -> None:
    for name in tidegate.__all__:
        assert getattr(tidegate, name) is not None
    assert set(tidegate.__all__) <= set(dir(tidegate))
    with pytest.raises(AttributeError, match="unknown"):
        tidegate.unknown  # noqa: B018


class Nested(ProcessFunction[Any, Any]):
    kept: ValueState[int | None]

    async def process(self, ctx: Context, event: Any) -> None: ...


def test_a_class_and_a_function_compile_to_the_same_definition() -> None:
    app = App("app")
    topic = app.topic("t")

    async def function(ctx: Context, event: Any, kept: ValueState[int | None]) -> None: ...

    one = app.process(topic)(Nested).definition
    two = app.process(topic)(function).definition
    assert list(one.states) == list(two.states) == ["kept"]
    assert one.topics == two.topics
