"""Service: what `app.process` and `app.actor` return. It collects declarations, and sends messages to actors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Generic, TypeVar, overload

from tidegate.codecs import type_name, types_overlap
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
    OutgoingMessage,
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
    """A keyed service of an app, with keys of type K. `@app.process(...)` and `app.actor(...)` create it.

    Its decorators add handlers: `on` for messages, `on_timer` for timers, `on_open` and `on_close` for the lifecycle of
    a task, `migrate` for old state. `tell` and `ask` send messages to its actors. Calling the service calls the
    decorated function, for plain unit tests."""

    messenger: Messenger | None = None
    """Sends messages to it. Set by the app."""

    def __init__(self, definition: ServiceDefinition, original: Any, names: Mapping[str, Any]) -> None:
        """`names`: local names that annotations of its handlers may use, in addition to global ones."""
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
        """The definition from the declarations so far."""
        return self._definition

    def complete(self) -> ServiceDefinition:
        """The definition for a plan. Later declarations would be missing in it, so they are refused."""
        self._planned = True
        return self._definition

    @property
    def original(self) -> Any:
        """The decorated function or class."""
        return self._original

    def on_timer(self, name: str | None = None) -> TimerDecorator[K]:
        """Decorates the handler of the timers with this name; without a name, of all timers without a handler."""
        if callable(name):
            raise DefinitionError(f"write @{self.name}.on_timer() or @{self.name}.on_timer('name'), with parentheses")

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
        """Decorates the handler of a type of message, from `tell`, `ask` and `ctx.tell`.

        message_type: the type of the message. name: its name on the wire; default: the name of the type. reply: the
        type of the values that the handler passes to `ctx.reply` and that `ask` returns; default: that of the
        `Request`."""

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
            if not types_overlap(definition.reply.type, signature.reply_type):
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
        """The types of message that it handles, by name."""
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
        """Send a message to an actor. Returns its position in the mailbox, once it is durable.

        key: the actor. idempotency_key: messages to an actor with the same one are handled once. timestamp: default:
        now. Handlers use `ctx.tell` instead."""
        messenger = self._messenger_for("tell")
        return await messenger.tell(OutgoingMessage(self.name, key, message, idempotency_key, timestamp, headers))

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

    @overload  # for mypy, where the result is used as another type, so that the first overload does not match
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
        """Send a message to an actor and wait for the reply: the value from `ctx.reply`, or None. It arrives after the
        commit of everything that the handler did. The reply to a `Request[R]` is an R.

        key: the actor. timeout: of the wait for the reply. idempotency_key: a second message to the actor with the same
        one is not handled; its reply is that of the first. timestamp: default: now.

        Raises RejectedError, MessageFailedError, IdempotencyError, and AskTimeoutError after `timeout`."""
        messenger = self._messenger_for("ask")
        outgoing = OutgoingMessage(self.name, key, message, idempotency_key, timestamp, headers)
        return (await messenger.ask(outgoing, timeout=timeout)).value

    def _messenger_for(self, verb: str) -> Messenger:
        refuse_in_handlers(verb, self.name)
        if self.messenger is None:
            raise UsageError(
                f"service {self.name!r} is not registered with an app, so {verb} has no mailbox to send to; declare it "
                f"with @app.process or app.actor"
            )
        return self.messenger

    # -- hooks -------------------------------------------------------------------------------------------------------
    def migrate(self, state: str, *, from_version: int) -> Callable[[Handler], Handler]:
        """Decorates a function that converts values of a state to the next version. Classes use `@migration` instead.

            @matchmaker.migrate("pair", from_version=1)
            def with_a_time(old: PairV1) -> Pair: ...

        state: the name of the state. from_version: the version of the old values. The annotation of the parameter is
        the type of the old values; without one they are plain JSON values. A result of None removes the value. The
        function runs once for each stored value, when a task is opened."""

        def register(function: Handler) -> Handler:
            declared = self.definition.states.get(state)
            if declared is None:
                raise DefinitionError(f"service {self.name!r} has no state {state!r} to migrate")
            if not 1 <= from_version < declared.version:
                raise DefinitionError(
                    f"service {self.name!r}: state {state!r} has version {declared.version}, which a migration from "
                    f"version {from_version} does not lead to; declare it with Version({from_version + 1})"
                )
            migrations = self.definition.migrations
            if (state, from_version) in migrations:
                raise DefinitionError(f"state {state!r} has two migrations from version {from_version}; keep one")
            migration = read_migration(state, from_version, function, self._names)
            self._declare("migrate", migrations={**migrations, (state, from_version): migration})
            return function

        return register

    def on_open(self, hook: LifecycleHook) -> LifecycleHook:
        """Decorates a function that runs before the first record of a task, such as to open a client."""
        self._refuse_class_form("open")
        self._declare("on_open", hooks=replace(self.definition.hooks, open=hook))
        return hook

    def on_close(self, hook: LifecycleHook) -> LifecycleHook:
        """Decorates a function that runs after the last record of a task."""
        self._refuse_class_form("close")
        self._declare("on_close", hooks=replace(self.definition.hooks, close=hook))
        return hook

    # -- the definition ----------------------------------------------------------------------------------------------
    def _declare(self, verb: str, **changes: Any) -> None:
        if self._planned:
            raise DefinitionError(
                f"@{self.name}.{verb} comes too late: the app is already planned or running. Declare all handlers and "
                f"hooks of service {self.name!r} with the service, before the app starts"
            )
        self._definition = replace(self._definition, **changes)

    def _refuse_class_form(self, method: str) -> None:
        if self.definition.prototype is not None:
            raise DefinitionError(f"{self.name} is a class: give it a method {method!r} instead")

    def _states_with(self, signature: HandlerSignature) -> dict[str, StateDeclaration]:
        """The first declaration of a state counts. Later ones may omit its options, but not contradict them."""
        states = dict(self.definition.states)
        for declaration in signature.states:
            known = states.get(declaration.name)
            if known is None:
                declaration.check_initial()
                known = states[declaration.name] = declaration
            if not known.agrees_with(declaration):
                raise DefinitionError(
                    f"service {self.name!r}: state {declaration.name!r} is declared in two different ways; use the "
                    f"same kind, types and options in all its handlers"
                )
        return states
