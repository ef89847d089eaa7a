"""Messages to actors: which types a service takes, what it replies, and who carries them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from tidegate.codecs import Codec, codec_for
from tidegate.errors import DefinitionError, InsideHandlerError, UnknownMessageError
from tidegate.functions.handler_spec import HandlerSpec
from tidegate.logs.base import Headers
from tidegate.time.clock import Duration, Instant

__all__ = (
    "ASK_SECONDS",
    "Answered",
    "MessageDefinition",
    "Messenger",
    "Outgoing",
    "Posted",
    "handling",
    "marked_methods",
    "message_definition",
    "on",
    "refuse_in_handlers",
    "the_one_for",
)

F = TypeVar("F", bound=Callable[..., Any])

ASK_SECONDS: Final = 10.0
"""How long an ask waits unless it is told."""

_MARK: Final = "__tidegate_message__"

handling: ContextVar[str | None] = ContextVar("handling", default=None)
"""The task whose handler is running: there, only what goes through its context is part of its transaction."""


def refuse_in_handlers(verb: str, target: str) -> None:
    """To `send`, `tell` or `ask` something past the context."""
    task = handling.get()
    if task is not None:
        raise InsideHandlerError(verb, task, target)


class Posted(NamedTuple):
    """Where a message lies in its mailbox."""

    topic: str
    partition: int
    position: int
    """After it: whoever has read so far has read it."""


class Answered(NamedTuple):
    """A reply, and the message that it answers."""

    value: Any
    posted: Posted


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message that is not in its mailbox yet."""

    service: str
    key: Any
    message: Any
    idempotency_key: str | None = None
    timestamp: Instant | None = None
    """None: when it is put there."""
    headers: Headers = ()


class Messenger(Protocol):
    """Carries messages to the services of an app, from outside of their handlers."""

    async def tell(self, message: Outgoing) -> Posted: ...

    async def ask(self, message: Outgoing, *, timeout: Duration = ASK_SECONDS) -> Answered: ...


@dataclass(frozen=True, kw_only=True)
class MessageDefinition:
    """One type of message that a service takes."""

    name: str
    """What it is called on the wire."""
    codec: Codec[Any]
    reply: Codec[Any]
    """Of what is replied to it."""
    handler: HandlerSpec


def on(message_type: Any, *, name: str | None = None, reply: Any = Any) -> Callable[[F], F]:
    """In a ProcessFunction: this method handles messages of this type. See `Service.on`."""

    def mark(method: F) -> F:
        setattr(method, _MARK, (message_type, name, reply))
        return method

    return mark


def marked_methods(cls: type) -> dict[str, MessageDefinition]:
    """The messages that the methods of a class handle, inherited ones included."""
    found: dict[str, MessageDefinition] = {}
    for attribute in dir(cls):
        marked = getattr(getattr(cls, attribute, None), _MARK, None)
        if marked is None:
            continue
        message_type, name, reply = marked
        handler = HandlerSpec(method=attribute, event_type=message_type)
        definition = message_definition(cls.__qualname__, message_type, name, reply, handler)
        if definition.name in found:
            raise DefinitionError(f"{cls.__qualname__} has two handlers for the message {definition.name!r}; keep one")
        found[definition.name] = definition
    return found


def message_definition(
    label: str, message_type: Any, name: str | None, reply: Any, handler: HandlerSpec
) -> MessageDefinition:
    called = name or getattr(message_type, "__name__", None)
    if not called or not called.isascii() or not called.isprintable():
        raise DefinitionError(
            f"{label}: what are messages of type {message_type!r} called? Give them a name: on(..., name='...')"
        )
    if bytes in (message_type, reply):
        raise DefinitionError(f"{label}: a message and its reply are JSON, so neither is of type bytes")
    return MessageDefinition(name=called, codec=codec_for(message_type), reply=codec_for(reply), handler=handler)


def the_one_for(service: str, messages: Mapping[str, MessageDefinition], message: Any) -> MessageDefinition:
    """The definition of a message by its type. UnknownMessageError: the service takes none such."""
    kind = type(message)
    for definition in messages.values():
        if definition.codec.type is kind:
            return definition
    for definition in messages.values():
        if definition.codec.check(message):
            return definition
    raise UnknownMessageError(service, kind.__name__, _names(messages.values()))


def _names(messages: Iterable[MessageDefinition]) -> list[str]:
    return [definition.name for definition in messages]
