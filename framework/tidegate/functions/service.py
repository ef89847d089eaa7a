"""A service: one definition for both forms, function and class, and what users do with it. See `making`."""

from __future__ import annotations

import copy
import enum
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from tidegate.codecs import type_name
from tidegate.errors import DefinitionError, UsageError
from tidegate.functions.context import TaskInfo
from tidegate.functions.handler_call import BoundHandler, bound_handler
from tidegate.functions.messages import (
    ASK_SECONDS,
    MessageDefinition,
    Messenger,
    Outgoing,
    Posted,
    message_definition,
    refuse_in_handlers,
)
from tidegate.functions.migrations import Migration, read_migration
from tidegate.functions.policies import STOP, ErrorPolicy
from tidegate.functions.process import ProcessFunction
from tidegate.functions.signature import check_key_type, read_signature
from tidegate.functions.topics import TopicDefinition
from tidegate.keys import KEY_GROUPS
from tidegate.logs.base import Headers
from tidegate.state.declaration import StateDeclaration
from tidegate.state.kinds import State
from tidegate.time.clock import Duration, Instant

__all__ = ("OWN_KEY", "Bound", "Guarantee", "Handler", "Service", "ServiceDefinition")

Guarantee = Literal["exactly_once", "at_least_once"]
Handler = Callable[..., Any]
Hook = Callable[[TaskInfo], Any]
"""A `def` or an `async def`."""


class OwnKey(enum.Enum):
    """What a shuffle's function returns for a record that keeps its key."""

    OWN_KEY = enum.auto()


OWN_KEY: Final = OwnKey.OWN_KEY


class Bound(NamedTuple):
    """All handlers of a service with one set of state objects."""

    process: BoundHandler
    timers: Mapping[str | None, BoundHandler]
    """By the timer's name; None handles all other names."""
    messages: Mapping[str, BoundHandler]
    """By the name of the message type."""


@dataclass(kw_only=True)
class ServiceDefinition:
    """All that the engine needs to know of a service."""

    name: str
    inputs: tuple[TopicDefinition, ...]
    outputs: Mapping[str, TopicDefinition]
    """By name; the first is the default one."""
    states: dict[str, StateDeclaration]
    key_type: Any = str
    key_by: tuple[Callable[[Any], Any], ...] | None = None
    """Per input topic, from the value to the key under which this service wants it; None: as the records are keyed."""
    parallelism: int | None = None
    """How many tasks it wants, whatever its input topics have; None: as many as those have partitions."""
    errors: ErrorPolicy = STOP
    timeout: float | None = None
    """Seconds that a handler may take."""
    concurrency: int = 1000
    """How many handlers of one task may wait at the same time."""
    guarantee: Guarantee = "exactly_once"
    rekeys: str | None = None
    """The name of the service for which this one only places records by another key."""
    forward: Callable[[Any], Any] | None = None
    """For such a service: from the value to the new key, or OWN_KEY."""
    prototype: ProcessFunction[Any, Any] | None = None
    """The class form; the function form has the three below instead."""
    handler: Handler | None = None
    handler_states: tuple[str, ...] = ()
    timer_handlers: dict[str | None, tuple[Handler, tuple[str, ...]]] = field(default_factory=dict)
    """By the timer's name; None handles all other names."""
    migrations: dict[tuple[str, int], Migration] = field(default_factory=dict)
    """By the state's name and the version that they begin with."""
    on_open: Hook | None = None
    on_close: Hook | None = None
    messages: dict[str, MessageDefinition] = field(default_factory=dict)
    """What it takes as an actor, by name. Without any it has no mailbox."""
    partitions: int = 0
    """Of the mailbox, where it is the only input; 0: what the settings say."""
    remember_ms: int = 24 * 3_600_000
    """How long idempotency keys are known."""

    def __post_init__(self) -> None:
        if self.concurrency < 1:
            raise DefinitionError(f"service {self.name!r}: concurrency must be at least 1, not {self.concurrency}")
        if self.parallelism is not None and not 1 <= self.parallelism <= KEY_GROUPS:
            raise DefinitionError(
                f"service {self.name!r}: parallelism must be from 1 to {KEY_GROUPS}, not {self.parallelism}"
            )
        if self.timeout is not None and not self.timeout > 0:
            raise DefinitionError(f"service {self.name!r}: timeout must be more than 0, not {self.timeout:g} s")
        if not isinstance(self.errors, ErrorPolicy):
            raise DefinitionError(
                f"service {self.name!r}: errors must be STOP, SKIP, DEAD_LETTER or retry(...), not {self.errors!r}"
            )
        if self.guarantee not in typing.get_args(Guarantee):
            known = " or ".join(typing.get_args(Guarantee))
            raise DefinitionError(f"service {self.name!r}: guarantee must be {known}, not {self.guarantee!r}")

    @property
    def tasks(self) -> int:
        """As many as its inputs have partitions."""
        return self.inputs[0].partitions

    @property
    def mailbox(self) -> TopicDefinition | None:
        """Where its messages lie; the plan adds it to the inputs."""
        return next((topic for topic in self.inputs if topic.mailbox), None)

    @property
    def event_types(self) -> tuple[Any, ...]:
        return tuple(topic.codec.type for topic in self.inputs)

    def handles_timer(self, name: str) -> bool:
        if self.prototype is not None:
            return type(self.prototype).on_timer is not ProcessFunction.on_timer
        return name in self.timer_handlers or None in self.timer_handlers

    def check_may_take_messages(self) -> None:
        if self.guarantee == "at_least_once":
            raise DefinitionError(
                f"service {self.name!r} is at_least_once: its replies would leave before they are committed. "
                f"Leave guarantee= out, or take messages in a service of their own."
            )

    def bind(self, states: Mapping[str, State], opened: ProcessFunction[Any, Any] | None) -> Bound:
        if opened is not None:
            mine = copy.copy(opened)
            for name, state in states.items():
                if name in vars(mine):
                    raise DefinitionError(
                        f"{type(mine).__qualname__}.{name} is a state, so __init__ and open leave it alone: say what "
                        f"it is before it is set in its annotation, Annotated[ValueState[...], Default(...)]"
                    )
                setattr(mine, name, state)
            messages = {name: bound_handler(getattr(mine, it.method)) for name, it in self.messages.items()}
            return Bound(bound_handler(mine.process), {None: bound_handler(mine.on_timer)}, messages)
        if self.handler is None:
            raise DefinitionError(f"service {self.name!r} has no handler")

        def bound(handler: Handler, wanted: Iterable[str]) -> BoundHandler:
            return bound_handler(handler, tuple(states[name] for name in wanted))

        timers = {name: bound(*timer) for name, timer in self.timer_handlers.items()}
        messages = {name: bound(it.handler, it.states) for name, it in self.messages.items() if it.handler is not None}
        return Bound(bound(self.handler, self.handler_states), timers, messages)


class Service:
    """A keyed service of an app. Calling it calls the handler itself, for plain unit tests."""

    messenger: Messenger | None = None
    """Carries messages to it; the app that it is registered with gives it one."""

    def __init__(self, definition: ServiceDefinition, original: Any, names: Mapping[str, Any]) -> None:
        self.definition = definition
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
    def original(self) -> Any:
        """The function, or the class, that it was made of."""
        return self._original

    def on_timer(self, name: str | None = None) -> Callable[[Handler], Handler]:
        """Handle the timer of this name; without a name, all that have no handler of their own."""
        if callable(name):
            raise DefinitionError(f"write @{self.name}.on_timer() or @{self.name}.on_timer('name'), with the brackets")

        def register(handler: Handler) -> Handler:
            self._refuse_class_form("on_timer")
            if name in self.definition.timer_handlers:
                raise DefinitionError(f"service {self.name!r} has two handlers for the timer {name!r}; keep one")
            signature = read_signature(handler, self._names, event="timer")
            check_key_type(signature.label, signature.key_type, self.definition.key_type)
            for declaration in signature.states:
                self._add_state(declaration)
            self.definition.timer_handlers[name] = (signature.call, tuple(s.name for s in signature.states))
            return handler

        return register

    # -- messages ----------------------------------------------------------------------------------------------------
    def on(self, message_type: Any, *, name: str | None = None, reply: Any = Any) -> Callable[[Handler], Handler]:
        """Handle messages of this type: those of `tell`, `ask` and `ctx.tell`.

        name: what they are called on the wire, else as their type. reply: the type of what the handler gives to
        `ctx.reply`; whoever asks gets a value of it."""

        def register(handler: Handler) -> Handler:
            if self.definition.prototype is not None:
                raise DefinitionError(f"{self.name} is a class: mark a method with @tidegate.on(...) instead")
            self.definition.check_may_take_messages()
            signature = read_signature(handler, self._names, event="event")
            check_key_type(signature.label, signature.key_type, self.definition.key_type)
            if signature.event_type not in (Any, message_type):
                label = getattr(handler, "__qualname__", repr(handler))
                raise DefinitionError(
                    f"{label} is registered for {type_name(message_type)}, but takes a message of "
                    f"{type_name(signature.event_type)}"
                )
            definition = message_definition(
                self.name, message_type, name, reply,
                handler=signature.call, states=tuple(state.name for state in signature.states),
            )  # fmt: skip
            if definition.name in self.definition.messages:
                raise DefinitionError(
                    f"service {self.name!r} has two handlers for the message {definition.name!r}; keep one, or give "
                    f"one of them name=..."
                )
            for declaration in signature.states:
                self._add_state(declaration)
            self.definition.messages[definition.name] = definition
            return handler

        return register

    @property
    def messages(self) -> Mapping[str, MessageDefinition]:
        """The types of message that it takes, by name."""
        return self.definition.messages

    async def tell(
        self,
        key: Any,
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

    async def ask(
        self,
        key: Any,
        message: Any,
        *,
        timeout: Duration = ASK_SECONDS,
        idempotency_key: str | None = None,
        timestamp: Instant | None = None,
        headers: Headers = (),
    ) -> Any:
        """Tell the actor `key` something, and wait for its reply: what its handler gave to `ctx.reply`, or None. It
        comes when everything that the handler did is committed.

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
            if (state, from_version) in self.definition.migrations:
                raise DefinitionError(f"state {state!r} has two migrations from version {from_version}; keep one")
            migration = read_migration(state, from_version, function, self._names)
            self.definition.migrations[state, from_version] = migration
            return function

        return register

    def on_open(self, hook: Hook) -> Hook:
        """Run before the first record of a task."""
        self._refuse_class_form("open")
        self.definition.on_open = hook
        return hook

    def on_close(self, hook: Hook) -> Hook:
        """Run after the last record of a task."""
        self._refuse_class_form("close")
        self.definition.on_close = hook
        return hook

    def _refuse_class_form(self, method: str) -> None:
        if self.definition.prototype is not None:
            raise DefinitionError(f"{self.name} is a class: give it a method {method!r} instead")

    def _add_state(self, declaration: StateDeclaration) -> None:
        """The first declaration counts; later ones may leave its options out, but not contradict it."""
        known = self.definition.states.get(declaration.name)
        if known is None:
            declaration.check_initial()
            known = self.definition.states[declaration.name] = declaration
        if not known.agrees_with(declaration):
            raise DefinitionError(
                f"service {self.name!r}: state {declaration.name!r} is declared in two different ways"
            )
