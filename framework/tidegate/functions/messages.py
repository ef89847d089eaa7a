"""Messages to actors: which types a service takes, what it replies, and who carries them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Protocol, TypeVar, get_args, get_origin, overload

from tidegate.codecs import Codec, codec_for, type_name
from tidegate.errors import DefinitionError, InsideHandlerError, UnknownMessageError
from tidegate.functions.declaration.handler_spec import HandlerSpec
from tidegate.logs.base import Headers
from tidegate.time.clock import Duration, Instant

if TYPE_CHECKING:
    from tidegate.functions.declaration.decorators import MessageMethodDecorator

__all__ = (
    "ASK_SECONDS",
    "Answered",
    "MessageDefinition",
    "Messenger",
    "Outgoing",
    "Posted",
    "ReplyOfAnotherType",
    "Request",
    "handling",
    "marked_methods",
    "message_definition",
    "on",
    "refuse_in_handlers",
    "reply_of",
    "the_one_for",
)

M = TypeVar("M")
R = TypeVar("R")
Reply = TypeVar("Reply", covariant=True)

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


class Request(Generic[Reply]):
    """A message that is answered with a value of one type: `class Withdraw(msgspec.Struct, Request[Balance])`.

    The type of the reply need not be named again: `@service.on(Withdraw)` knows it, and so do type checkers where it is
    asked: `await account.ask("ann", Withdraw(3))` is a Balance. Its handler must reply."""

    __slots__ = ()


class ReplyOfAnotherType:
    """What type checkers show where the reply to a Request is taken for something else."""


def reply_of(message_type: Any) -> Any:
    """What a Request is answered with; Any: it is none."""
    for cls in getattr(message_type, "__mro__", ()):
        for base in vars(cls).get("__orig_bases__", ()):
            if get_origin(base) is Request:
                return get_args(base)[0]
    return Any


@overload
def on(message_type: type[M], *, name: str | None = None, reply: type[R]) -> MessageMethodDecorator[M, R]: ...


@overload
def on(message_type: type[M], *, name: str | None = None, reply: Any = ...) -> MessageMethodDecorator[M, Any]: ...


@overload
def on(message_type: Any, *, name: str | None = None, reply: Any = Any) -> MessageMethodDecorator[Any, Any]: ...


def on(message_type: Any, *, name: str | None = None, reply: Any = Any) -> Any:
    """In a ProcessFunction: this method handles messages of this type. See `Service.on`."""

    def mark(method: Any) -> Any:
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
    reply = _agreed_reply(label, message_type, reply)
    if bytes in (message_type, reply):
        raise DefinitionError(f"{label}: a message and its reply are JSON, so neither is of type bytes")
    return MessageDefinition(name=called, codec=codec_for(message_type), reply=codec_for(reply), handler=handler)


def _agreed_reply(label: str, message_type: Any, reply: Any) -> Any:
    """What the message says of its reply, and what reply= says."""
    declared = reply_of(message_type)
    if declared is Any or reply is Any or reply == declared:
        return reply if declared is Any else declared
    raise DefinitionError(
        f"{label}: {type_name(message_type)} is a Request[{type_name(declared)}], so its reply cannot be of "
        f"{type_name(reply)}: leave reply= out, or change the base class"
    )


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
