"""A service as users hold it: what the decorator returns. It collects declarations, and talks to actors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Generic, TypeVar, overload

from tidegate.codecs import may_be, type_name
from tidegate.errors import DefinitionError, UsageError
from tidegate.functions.declaration.decorators import MessageDecorator, TimerDecorator
from tidegate.functions.declaration.handler_spec import Handler
from tidegate.functions.declaration.references import ServiceReference
from tidegate.functions.declaration.signature import HandlerSignature, check_key_type, read_signature
from tidegate.functions.declaration.type_variables import TypeVar as TypeVarWithDefault
from tidegate.functions.definition import LifecycleHook, ServiceDefinition
from tidegate.functions.messages import (
    ASK_SECONDS,
    MessageDefinition,
    Messenger,
    Outgoing,
    Posted,
    ReplyOfAnotherType,
    Request,
    message_definition,
    refuse_in_handlers,
)
from tidegate.functions.migrations import read_migration
from tidegate.logs.base import Headers
from tidegate.state.declaration import StateDeclaration
from tidegate.time.clock import Duration, Instant

__all__ = ("Service",)

M = TypeVar("M")
R = TypeVar("R")
K = TypeVarWithDefault("K", contravariant=True, default=Any)


class Service(ServiceReference[K], Generic[K]):
    """A keyed service of an app, whose keys are of type K.

    Calling it calls the handler itself, for plain unit tests."""

    messenger: Messenger | None = None
    """Carries messages to it; the app that it is registered with gives it one."""

    def __init__(self, definition: ServiceDefinition, original: Any, names: Mapping[str, Any]) -> None:
        """`names`: what the annotations of its handlers may name besides what is global."""
        self._definition, self._planned = definition, False
        self._original, self._names = original, names
        self.__doc__ = original.__doc__
        self.__name__ = definition.name

    def __repr__(self) -> str:
        return f"<Service {self.name}>"

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self._original(*arguments, **options)

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def definition(self) -> ServiceDefinition:
        """As declared so far."""
        return self._definition

    def complete(self) -> ServiceDefinition:
        """The definition to plan with. Whatever is declared from now on would be missing there, so it is refused."""
        self._planned = True
        return self._definition

    @property
    def original(self) -> Any:
        """The function, or the class, that it was made of."""
        return self._original

    def on_timer(self, name: str | None = None) -> TimerDecorator[K]:
        """Handle the timer of this name; without a name, all that have no handler of their own."""
        if callable(name):
            raise DefinitionError(f"write @{self.name}.on_timer() or @{self.name}.on_timer('name'), with the brackets")

        def register(handler: Handler) -> Handler:
            self._refuse_class_form("on_timer")
            timers = self.definition.timers
            if name in timers:
                raise DefinitionError(f"service {self.name!r} has two handlers for the timer {name!r}; keep one")
            signature = read_signature(handler, self._names, event="timer")
            check_key_type(signature.label, signature.key_type, self.definition.key_type)
            self._declare("on_timer", states=self._states_with(signature), timers={**timers, name: signature.handler})
            return handler

        return register

    # -- messages ----------------------------------------------------------------------------------------------------
    @overload
    def on(self, message_type: type[M], *, name: str | None = None, reply: type[R]) -> MessageDecorator[K, M, R]: ...

    @overload
    def on(
        self, message_type: type[M], *, name: str | None = None, reply: Any = ...
    ) -> MessageDecorator[K, M, Any]: ...

    @overload
    def on(self, message_type: Any, *, name: str | None = None, reply: Any = Any) -> MessageDecorator[K, Any, Any]: ...

    def on(self, message_type: Any, *, name: str | None = None, reply: Any = Any) -> Any:
        """Handle messages of this type: those of `tell`, `ask` and `ctx.tell`.

        name: what they are called on the wire, else as their type. reply: the type of what the handler gives to
        `ctx.reply`; whoever asks gets a value of it."""

        def register(handler: Handler) -> Handler:
            if self.definition.prototype is not None:
                raise DefinitionError(f"{self.name} is a class: mark a method with @tidegate.on(...) instead")
            signature = read_signature(handler, self._names, event="event")
            check_key_type(signature.label, signature.key_type, self.definition.key_type)
            if signature.event_type not in (Any, message_type):
                label = getattr(handler, "__qualname__", repr(handler))
                raise DefinitionError(
                    f"{label} is registered for {type_name(message_type)}, but takes a message of "
                    f"{type_name(signature.event_type)}"
                )
            definition = message_definition(self.name, message_type, name, reply, signature.handler)
            if not may_be(definition.reply.type, signature.reply_type):
                raise DefinitionError(
                    f"{signature.label} takes a Context[..., {type_name(signature.reply_type)}], but replies to "
                    f"{type_name(message_type)} are of {type_name(definition.reply.type)}"
                )
            if definition.name in self.messages:
                raise DefinitionError(
                    f"service {self.name!r} has two handlers for the message {definition.name!r}; keep one, or give "
                    f"one of them name=..."
                )
            actor = replace(self.definition.actor, messages={**self.messages, definition.name: definition})
            self._declare("on", states=self._states_with(signature), actor=actor)
            return handler

        return register

    @property
    def messages(self) -> Mapping[str, MessageDefinition]:
        """The types of message that it takes, by name."""
        return self.definition.messages

    async def tell(
        self,
        key: K,
        message: Any,
        *,
        idempotency_key: str | None = None,
        timestamp: Instant | None = None,
        headers: Headers = (),
    ) -> Posted:
        """Put a message into the mailbox of the actor `key`. Returns where it lies, when it is durable.

        idempotency_key: the message is handled once, however often it is told under the same one. Within a handler,
        use `ctx.tell`."""
        carrier = self._carrier("tell")
        return await carrier.tell(Outgoing(self.name, key, message, idempotency_key, timestamp, headers))

    @overload
    async def ask(
        self,
        key: K,
        message: Request[R],
        *,
        timeout: Duration = ASK_SECONDS,
        idempotency_key: str | None = None,
        timestamp: Instant | None = None,
        headers: Headers = (),
    ) -> R: ...

    @overload  # where mypy is told that the reply is of another type, and so does not take the first
    async def ask(  # type: ignore[overload-cannot-match]
        self,
        key: K,
        message: Request[object],
        *,
        timeout: Duration = ASK_SECONDS,
        idempotency_key: str | None = None,
        timestamp: Instant | None = None,
        headers: Headers = (),
    ) -> ReplyOfAnotherType: ...

    @overload
    async def ask(
        self,
        key: K,
        message: Any,
        *,
        timeout: Duration = ASK_SECONDS,
        idempotency_key: str | None = None,
        timestamp: Instant | None = None,
        headers: Headers = (),
    ) -> Any: ...

    async def ask(
        self,
        key: K,
        message: Any,
        *,
        timeout: Duration = ASK_SECONDS,
        idempotency_key: str | None = None,
        timestamp: Instant | None = None,
        headers: Headers = (),
    ) -> Any:
        """Tell the actor `key` something, and wait for its reply: what its handler gave to `ctx.reply`, or None. It
        comes when everything that the handler did is committed. The reply to a `Request[R]` is an R.

        idempotency_key: asked again under the same one, the message is not handled again, and the reply is the same.
        Raises RejectedError, MessageFailedError, IdempotencyError, and AskTimeoutError after `timeout`."""
        carrier, outgoing = self._carrier("ask"), Outgoing(self.name, key, message, idempotency_key, timestamp, headers)
        return (await carrier.ask(outgoing, timeout=timeout)).value

    def _carrier(self, verb: str) -> Messenger:
        refuse_in_handlers(verb, self.name)
        if self.messenger is None:
            raise UsageError(f"service {self.name!r} belongs to no app, so nobody can {verb} it anything")
        return self.messenger

    # -- hooks -------------------------------------------------------------------------------------------------------
    def migrate(self, state: str, *, from_version: int) -> Callable[[Handler], Handler]:
        """Say how values of this version of a state become those of the next. A class has `@migration` for it.

            @matchmaker.migrate("pair", from_version=1)
            def with_a_time(old: PairV1) -> Pair: ...

        The parameter's annotation says what the old values are; without one they are what JSON has. None removes a
        value. It runs once for each stored value, when a task is opened."""

        def register(function: Handler) -> Handler:
            declared = self.definition.states.get(state)
            if declared is None:
                raise DefinitionError(f"service {self.name!r} has no state {state!r}, so none can be migrated")
            if not 1 <= from_version < declared.version:
                raise DefinitionError(
                    f"service {self.name!r}: state {state!r} is of version {declared.version}, so nothing leads there "
                    f"from version {from_version}; declare it with Version({from_version + 1})"
                )
            migrations = self.definition.migrations
            if (state, from_version) in migrations:
                raise DefinitionError(f"state {state!r} has two migrations from version {from_version}; keep one")
            migration = read_migration(state, from_version, function, self._names)
            self._declare("migrate", migrations={**migrations, (state, from_version): migration})
            return function

        return register

    def on_open(self, hook: LifecycleHook) -> LifecycleHook:
        """Run before the first record of a task."""
        self._refuse_class_form("open")
        self._declare("on_open", hooks=replace(self.definition.hooks, open=hook))
        return hook

    def on_close(self, hook: LifecycleHook) -> LifecycleHook:
        """Run after the last record of a task."""
        self._refuse_class_form("close")
        self._declare("on_close", hooks=replace(self.definition.hooks, close=hook))
        return hook

    # -- the definition ----------------------------------------------------------------------------------------------
    def _declare(self, verb: str, **changes: Any) -> None:
        if self._planned:
            raise DefinitionError(
                f"@{self.name}.{verb} comes too late: the app is already planned, or runs. Declare all handlers and "
                f"hooks of service {self.name!r} where it is made, before the app starts"
            )
        self._definition = replace(self._definition, **changes)

    def _refuse_class_form(self, method: str) -> None:
        if self.definition.prototype is not None:
            raise DefinitionError(f"{self.name} is a class: give it a method {method!r} instead")

    def _states_with(self, signature: HandlerSignature) -> dict[str, StateDeclaration]:
        """The first declaration of a state counts; later ones may leave its options out, but not contradict it."""
        states = dict(self.definition.states)
        for declaration in signature.states:
            known = states.get(declaration.name)
            if known is None:
                declaration.check_initial()
                known = states[declaration.name] = declaration
            if not known.agrees_with(declaration):
                raise DefinitionError(
                    f"service {self.name!r}: state {declaration.name!r} is declared in two different ways"
                )
        return states
