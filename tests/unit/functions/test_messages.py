"""Messages are declared by handlers: what is accepted, and what each mistake is called."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tidegate import App, Context, ProcessFunction, Request, ValueState, on
from tidegate.errors import DefinitionError


class Ping(msgspec.Struct, frozen=True):
    text: str


class Pong(msgspec.Struct, frozen=True):
    text: str


async def takes_ping(ctx: Context, message: Ping) -> None: ...


async def takes_pong(ctx: Context, message: Pong) -> None: ...


def test_a_message_has_the_name_of_its_type_or_a_given_one() -> None:
    actor = App("named").actor("actor")
    actor.on(Ping)(takes_ping)
    actor.on(Pong, name="pong", reply=int)(takes_pong)
    actor.on(dict[str, int], name="numbers")(handler_of_any)
    assert {name: message.codec.type for name, message in actor.messages.items()} == {
        "Ping": Ping,
        "pong": Pong,
        "numbers": dict[str, int],
    }
    assert actor.messages["pong"].reply.type is int


async def handler_of_any(ctx: Context, message: Any) -> None: ...


def test_states_of_message_handlers_join_those_of_the_service() -> None:
    app = App("states")
    words = app.topic("words", value_type=str, key=lambda word: word)

    @app.process(words)
    async def counter(ctx: Context, word: str, count: ValueState[int | None]) -> None: ...

    @counter.on(Ping)
    async def ping(
        ctx: Context, message: Ping, count: ValueState[int | None], pings: ValueState[int | None]
    ) -> None: ...

    assert set(counter.definition.states) == {"count", "pings"}
    with pytest.raises(DefinitionError, match="'count' is declared in two different ways"):

        @counter.on(Pong)
        async def pong(ctx: Context, message: Pong, count: ValueState[str | None]) -> None: ...


def test_two_handlers_for_one_message_are_refused() -> None:
    actor = App("twice").actor("actor")
    actor.on(Ping)(takes_ping)
    with pytest.raises(DefinitionError, match="two handlers for the message 'Ping'"):
        actor.on(Ping)(takes_ping)
    with pytest.raises(DefinitionError, match="two handlers for the message 'Ping'"):
        actor.on(Pong, name="Ping")(takes_pong)


def test_a_handler_that_takes_another_message_is_refused() -> None:
    with pytest.raises(DefinitionError, match=r"takes_pong is registered for .*Ping.*, but takes a message of .*Pong"):
        App("other").actor("actor").on(Ping)(takes_pong)  # type: ignore[arg-type]


def test_a_handler_that_is_no_function_is_refused() -> None:
    with pytest.raises(DefinitionError, match="no function: write 'def "):
        App("none").actor("actor").on(Ping)("takes_ping")  # type: ignore[arg-type]


def test_bytes_are_no_message_and_no_reply() -> None:
    actor = App("bytes").actor("actor")
    with pytest.raises(DefinitionError, match="JSON"):
        actor.on(bytes)(handler_of_any)
    with pytest.raises(DefinitionError, match="JSON"):
        actor.on(Ping, reply=bytes)(takes_ping)


def test_a_type_without_a_name_needs_one() -> None:
    with pytest.raises(DefinitionError, match=r"on\(\.\.\., name='\.\.\.'\)"):
        App("union").actor("actor").on(Ping | Pong)(handler_of_any)


def test_an_at_least_once_service_takes_no_messages() -> None:
    app = App("eager")
    words = app.topic("words", value_type=str, key=lambda word: word)

    @app.process(words, guarantee="at_least_once")
    async def eager(ctx: Context, word: str) -> None: ...

    with pytest.raises(DefinitionError, match="replies would be sent before they are committed"):
        eager.on(Ping)(takes_ping)


def test_a_class_marks_methods_and_no_functions_are_added() -> None:
    class Actor(ProcessFunction[Any, Any]):
        @on(Ping)
        async def ping(self, ctx: Context, message: Ping) -> None: ...

    class WithoutMessage(ProcessFunction[Any, Any]):
        @on(Ping)  # type: ignore[arg-type]
        def ping(self, ctx: Context) -> None: ...

    class Twice(Actor):
        @on(Ping)
        async def again(self, ctx: Context, message: Ping) -> None: ...

    app = App("classes")
    actor = app.actor(Actor)
    assert actor.messages["Ping"].handler.method == "ping"
    with pytest.raises(DefinitionError, match=r"mark a method with @tidegate\.on"):
        actor.on(Pong)(takes_pong)
    with pytest.raises(DefinitionError, match=r"WithoutMessage\.ping must be: def ping"):
        app.actor(WithoutMessage)
    with pytest.raises(DefinitionError, match="two handlers for the message 'Ping'"):
        app.actor(Twice)


def test_a_service_without_inputs_gives_an_error_that_suggests_actors() -> None:
    with pytest.raises(DefinitionError, match=r"app\.actor\('takes_ping'\)"):
        App("none").process()(takes_ping)  # type: ignore[call-overload]


def test_a_name_is_taken_once() -> None:
    app = App("names")
    app.actor("actor")
    with pytest.raises(DefinitionError, match="declared twice"):
        app.actor("actor")


class Asked(msgspec.Struct, Request[int], frozen=True):
    pass


class Narrower(Asked, frozen=True):
    pass


def test_a_request_declares_its_reply_type() -> None:
    async def handler(ctx: Context, message: Asked) -> None: ...

    class Actor(ProcessFunction[Any, Any]):
        @on(Narrower)
        async def asked(self, ctx: Context, message: Narrower) -> None: ...

    actor = App("asked").actor("actor")
    actor.on(Asked)(handler)
    assert actor.messages["Asked"].reply.type is int
    assert App("class").actor(Actor).messages["Narrower"].reply.type is int
    assert App("same").actor("actor").on(Asked, reply=int)(handler) is handler


def test_a_request_has_one_reply() -> None:
    async def handler(ctx: Context, message: Asked) -> None: ...

    async def answers_text(ctx: Context[str, str], message: Asked) -> None: ...

    with pytest.raises(DefinitionError, match=r"Asked is a Request\[int\], so its reply cannot be of str: leave"):
        App("other").actor("actor").on(Asked, reply=str)(handler)
    with pytest.raises(DefinitionError, match=r"answers_text .*Context\[\.\.\., str\].*replies to Asked are of int"):
        App("context").actor("actor").on(Asked)(answers_text)
