"""Messages to actors: the types that a service handles, their replies, and the contract of a messenger."""

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
"""The default timeout of `ask`."""

_MARK: Final = "__tidegate_message__"

handling: ContextVar[str | None] = ContextVar("handling", default=None)
"""The task whose handler is running. In a handler, only actions of its context are part of the transaction."""


def refuse_in_handlers(verb: str, target: str) -> None:
    """Refuse `send`, `tell` and `ask` that bypass the context."""
    task = handling.get()
    if task is not None:
        raise InsideHandlerError(verb, task, target)


class Posted(NamedTuple):
    """The position of a message in its mailbox."""

    topic: str
    partition: int
    position: int
    """The position after the message."""


class Answered(NamedTuple):
    """A reply, and the position of its message."""

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
    """None: the time of the append."""
    headers: Headers = ()


class Messenger(Protocol):
    """Carries messages to the services of an app, from outside of their handlers."""

    async def tell(self, message: Outgoing) -> Posted: ...

    async def ask(self, message: Outgoing, *, timeout: Duration = ASK_SECONDS) -> Answered: ...


@dataclass(frozen=True, kw_only=True)
class MessageDefinition:
    """One type of message that a service takes."""

    name: str
    """Its name on the wire."""
    codec: Codec[Any]
    reply: Codec[Any]
    """The codec of its replies."""
    handler: HandlerSpec


class Request(Generic[Reply]):
    """A message with a typed reply: `class Withdraw(msgspec.Struct, Request[Balance])`.

    The type of the reply is declared here only: `@service.on(Withdraw)` uses it, and for type checkers
    `await account.ask("ann", Withdraw(3))` is a Balance. The handler must reply."""

    __slots__ = ()


class ReplyOfAnotherType:
    """The type that type checkers report if the reply to a Request is used as another type."""


def reply_of(message_type: Any) -> Any:
    """The type of the reply to a Request; Any for other messages."""
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
            f"{label}: messages of type {message_type!r} have no name; give them one: on(..., name='...')"
        )
    reply = _agreed_reply(label, message_type, reply)
    if bytes in (message_type, reply):
        raise DefinitionError(f"{label}: a message and its reply are JSON, so neither can be of type bytes")
    return MessageDefinition(name=called, codec=codec_for(message_type), reply=codec_for(reply), handler=handler)


def _agreed_reply(label: str, message_type: Any, reply: Any) -> Any:
    """The type of the reply, from reply= or from the message's base class Request."""
    declared = reply_of(message_type)
    if declared is Any or reply is Any or reply == declared:
        return reply if declared is Any else declared
    raise DefinitionError(
        f"{label}: {type_name(message_type)} is a Request[{type_name(declared)}], so its reply cannot be of "
        f"{type_name(reply)}: leave reply= out, or change the base class"
    )


def the_one_for(service: str, messages: Mapping[str, MessageDefinition], message: Any) -> MessageDefinition:
    """The definition of a message by its type. Raises UnknownMessageError if the service does not handle it."""
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
