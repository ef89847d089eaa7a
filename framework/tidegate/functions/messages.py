"""Messages to actors: their definitions, requests and replies, and the interface that sends them."""

from __future__ import annotations

from collections.abc import Mapping
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
    "AskResult",
    "MessageDefinition",
    "Messenger",
    "OutgoingMessage",
    "Posted",
    "ReplyOfAnotherType",
    "Request",
    "definition_for",
    "handling",
    "marked_methods",
    "message_definition",
    "on",
    "refuse_in_handlers",
    "reply_of",
)

M = TypeVar("M")
R = TypeVar("R")
Reply = TypeVar("Reply", covariant=True)

ASK_SECONDS: Final = 10.0
"""The default timeout of an ask."""

_MARK: Final = "__tidegate_message__"

handling: ContextVar[str | None] = ContextVar("handling", default=None)
"""The task whose handler is running. Only what the handler does through its context is part of its transaction."""


def refuse_in_handlers(verb: str, target: str) -> None:
    """InsideHandlerError: a handler calls the `send`, `tell` or `ask` for code outside of handlers."""
    task = handling.get()
    if task is not None:
        raise InsideHandlerError(verb, task, target)


class Posted(NamedTuple):
    """The position of a message in its mailbox, returned by `service.tell`."""

    topic: str
    partition: int
    position: int
    """The offset after the message."""


class AskResult(NamedTuple):
    """A reply, and the position of its message."""

    value: Any
    posted: Posted


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """A message to be sent."""

    service: str
    key: Any
    message: Any
    idempotency_key: str | None = None
    timestamp: Instant | None = None
    """None: the time at which it is sent."""
    headers: Headers = ()


class Messenger(Protocol):
    """Sends messages to the services of an app, from outside of their handlers."""

    async def tell(self, message: OutgoingMessage) -> Posted: ...

    async def ask(self, message: OutgoingMessage, *, timeout: Duration = ASK_SECONDS) -> AskResult: ...


@dataclass(frozen=True, kw_only=True)
class MessageDefinition:
    """A type of message that a service handles."""

    name: str
    """Its name on the wire."""
    codec: Codec[Any]
    reply: Codec[Any]
    """The codec of replies."""
    handler: HandlerSpec


class Request(Generic[Reply]):
    """Base class of messages whose reply has a type: `class Withdraw(msgspec.Struct, Request[Balance])`.

    `@service.on(Withdraw)` takes the type of the reply from it, and type checkers infer the result of an ask: that of
    `await account.ask("ann", Withdraw(3))` is a Balance. The handler must reply."""

    __slots__ = ()


class ReplyOfAnotherType:
    """The type that type checkers report where the reply to a Request is used as another type."""


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
    """Decorates a method of a ProcessFunction that handles messages of a type.

    message_type, name, reply: as for `Service.on`."""

    def mark(method: Any) -> Any:
        setattr(method, _MARK, (message_type, name, reply))
        return method

    return mark


def marked_methods(cls: type) -> dict[str, MessageDefinition]:
    """The messages that the methods of a class handle, including inherited methods."""
    messages: dict[str, MessageDefinition] = {}
    for attribute in dir(cls):
        mark = getattr(getattr(cls, attribute, None), _MARK, None)
        if mark is None:
            continue
        message_type, name, reply = mark
        handler = HandlerSpec(method=attribute, event_type=message_type)
        definition = message_definition(cls.__qualname__, message_type, name, reply, handler)
        if definition.name in messages:
            raise DefinitionError(f"{cls.__qualname__} has two handlers for the message {definition.name!r}; keep one")
        messages[definition.name] = definition
    return messages


def message_definition(
    label: str, message_type: Any, name: str | None, reply: Any, handler: HandlerSpec
) -> MessageDefinition:
    name = name or getattr(message_type, "__name__", None)
    if not name or not name.isascii() or not name.isprintable():
        raise DefinitionError(
            f"{label}: messages of type {message_type!r} need a name in printable ASCII: on(..., name='...')"
        )
    reply = _reply_type(label, message_type, reply)
    if bytes in (message_type, reply):
        raise DefinitionError(f"{label}: messages and replies are JSON, so their types cannot be bytes")
    return MessageDefinition(name=name, codec=codec_for(message_type), reply=codec_for(reply), handler=handler)


def _reply_type(label: str, message_type: Any, reply: Any) -> Any:
    """From the message's type, if it is a Request, or from reply=. They must agree."""
    declared = reply_of(message_type)
    if declared is Any or reply is Any or reply == declared:
        return reply if declared is Any else declared
    raise DefinitionError(
        f"{label}: {type_name(message_type)} is a Request[{type_name(declared)}], so its reply cannot be of "
        f"{type_name(reply)}: leave reply= out, or change the base class"
    )


def definition_for(service: str, messages: Mapping[str, MessageDefinition], message: Any) -> MessageDefinition:
    """The definition of a message by its type. UnknownMessageError: the service has no handler for it."""
    message_type = type(message)
    for definition in messages.values():
        if definition.codec.type is message_type:
            return definition
    for definition in messages.values():
        if definition.codec.check(message):
            return definition
    raise UnknownMessageError(service, message_type.__name__, [definition.name for definition in messages.values()])
