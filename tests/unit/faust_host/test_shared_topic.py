"""A topic that services and agents share."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import faust
import msgspec
import pytest
from faust.exceptions import KeyDecodeError, ValueDecodeError
from faust.topics import Topic as FaustTopic
from faust.types import Message

from tidegate import App, Context
from tidegate.errors import DefinitionError, EncodeError, UsageError
from tidegate.faust_host.shared_topic import SharedTopic


class Event(msgspec.Struct):
    name: str


async def nothing(ctx: Context, event: Any) -> None: ...


def message(value: bytes | None, key: bytes | None = b"k") -> Message:
    return Message("t", 0, 0, 0.0, 0, {}, key, value, None)


def topic(**options: Any) -> SharedTopic:
    app = App("app")
    app.topic("t", **{"value_type": Event, "key": "name", **options})
    made = app.faust.topic("t")
    assert isinstance(made, SharedTopic)
    return made


# -- reading -----------------------------------------------------------------------------------------------------------


async def test_agents_read_keys_and_values_as_services_do() -> None:
    event = await topic(key_type=int).decode(message(b'{"name": "x"}', b"5"))
    assert (event.key, event.value) == (5, Event("x"))
    assert (await topic().decode(message(None, None))).value is None


async def test_a_value_of_another_type_is_a_faust_error() -> None:
    with pytest.raises(ValueDecodeError, match="Event"):
        await topic().decode(message(b'{"name": 5}'), propagate=True)
    with pytest.raises(KeyDecodeError, match="key"):
        await topic(key_type=int).decode(message(b'{"name": "x"}', b"five"), propagate=True)


async def test_clones_are_the_same_topic_and_derived_ones_are_fausts() -> None:
    original = topic()
    clone = original.clone(is_iterator=True)
    assert isinstance(clone, SharedTopic)
    assert clone.definition is original.definition
    derived = original.derive(suffix="-repartition", internal=True)
    assert type(derived) is FaustTopic
    assert derived.get_topic_name() == "t-repartition"
    assert (await derived.decode(message(b'{"name": "x"}'))).value == Event("x")


# -- writing -----------------------------------------------------------------------------------------------------------


def written(topic: SharedTopic, **options: Any) -> Any:
    return topic.as_future_message(**options).message


async def test_faust_writes_keys_and_values_as_services_do() -> None:
    record = written(topic(), value=Event("x"))
    assert (record.key, record.value) == (b"x", b'{"name":"x"}')
    assert written(topic(), key="other", value=Event("x")).key == b"other"
    with pytest.raises(EncodeError, match="expected a value of type Event"):
        written(topic(), value="x")


async def test_bytes_are_passed_on_as_they_are() -> None:
    record = written(topic(), key=b"k", value=b'{"name": "raw"}')
    assert (record.key, record.value) == (b"k", b'{"name": "raw"}')
    assert written(topic(), value=b"{}").key is None  # nobody has looked into it
    assert written(topic(value_type=bytes, key=lambda raw: raw[:1]), value=b"abc").key == b"a"


async def test_a_topic_without_a_type_accepts_every_faust_value() -> None:
    class Thing(faust.Record):
        n: int

    record = written(topic(value_type=None, key=None), key="k", value=Thing(n=5))
    assert msgspec.json.decode(record.value)["n"] == 5


@pytest.mark.parametrize("when", [1_700_000_000_500, 1_700_000_000.5, datetime.fromtimestamp(1_700_000_000.5, UTC)])
async def test_times_are_milliseconds_or_moments_or_fausts_seconds(when: Any) -> None:
    assert written(topic(), value=Event("x"), timestamp=when).timestamp == 1_700_000_000.5


async def test_a_record_that_is_passed_on_does_not_name_the_task_that_sent_it() -> None:
    given = [("tidegate", b"app/1/task.0/0"), ("tidegate-origin", b"t/0/5"), ("mine", b"1")]
    assert written(topic(), value=Event("x"), headers=given).headers == {"mine": b"1"}
    assert written(topic(), value=Event("x"), headers=dict(given)).headers == {"mine": b"1"}


async def test_faust_only_features_require_a_broker() -> None:
    with pytest.raises(UsageError, match=r"app.faust.topic\('t'\): only Faust"):
        await topic().send(value=Event("x"), partition=0)


# -- declaring ---------------------------------------------------------------------------------------------------------


def test_topics_of_fausts_are_for_agents_only() -> None:
    app = App("app")
    alone = [app.faust.topic("a", value_serializer="raw"), app.faust.topic("b", "c"), app.faust.topic(pattern="x.*")]
    for made in alone:
        assert not isinstance(made, SharedTopic)
        with pytest.raises(DefinitionError, match="which only Faust knows"):
            app.process(made)(nothing)
        with pytest.raises(DefinitionError, match="which only Faust knows"):
            app.process(app.topic(f"in-{id(made)}"), to=made)(nothing)
    assert all(name.startswith("in-") for name in app.topics)


def test_a_declared_topic_is_one_topic_of_fausts_under_its_name_and_itself() -> None:
    app = App("app")
    declared = app.topic("t", value_type=Event)
    shared = app.faust.topic("t")
    assert app.faust.topic(declared) is shared
    assert shared.definition is declared.definition
    assert shared.get_topic_name() == "t"
    with pytest.raises(
        DefinitionError, match=r"declared by app\.topic\(\.\.\.\), so it accepts no Faust options.*value_serializer"
    ):
        app.faust.topic("t", value_serializer="raw")


def test_an_agent_that_names_a_declared_topic_gets_it() -> None:
    app = App("app")

    @app.agent("t")
    async def by_name(stream: Any) -> None: ...

    @app.agent("u")
    async def unknown(stream: Any) -> None: ...

    declared = app.topic("t", value_type=Event)

    @app.agent(declared, sink=[declared])
    async def itself(stream: Any) -> None: ...

    agent: Any = itself

    shared = app.faust.topic(declared)
    assert by_name.channel is shared
    assert itself.channel is shared
    assert list(agent._sinks) == [shared]
    assert type(unknown.channel) is FaustTopic


async def test_sending_by_name_finds_a_declared_topic() -> None:
    app = App("app")
    app.topic("t", value_type=Event)
    with pytest.raises(UsageError, match=r"app.faust.topic\('t'\)"):
        await app.faust.send("t", "k", Event("x"))
