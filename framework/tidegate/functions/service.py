"""A service: what `@app.process` makes of a handler. Both forms, function and class, compile to one definition."""

from __future__ import annotations

import copy
import inspect
import typing
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from tidegate.codecs import codec_for
from tidegate.errors import DefinitionError
from tidegate.functions.context import TaskInfo
from tidegate.functions.policies import STOP, ErrorPolicy
from tidegate.functions.process import ProcessFunction
from tidegate.functions.signature import read_class_states, read_signature
from tidegate.functions.topics import TopicDefinition
from tidegate.state.declaration import StateDeclaration
from tidegate.state.kinds import State

__all__ = ("Bound", "Guarantee", "Service", "ServiceDefinition", "class_service", "function_service")

Guarantee = Literal["exactly_once", "at_least_once"]
Handler = Callable[..., Any]


class Bound(NamedTuple):
    """Handlers with one set of state objects. `process(ctx, event, *states)`; a timer's `handler(ctx, timer,
    *states)`."""

    process: Handler
    states: tuple[Any, ...]
    timers: Mapping[str | None, tuple[Handler, tuple[Any, ...]]]


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
    errors: ErrorPolicy = STOP
    timeout: float | None = None
    """Seconds that a handler may take."""
    concurrency: int = 1000
    """How many handlers of one task may wait at the same time."""
    guarantee: Guarantee = "exactly_once"
    rekeys: str | None = None
    """The name of the service for which this one only places records by another key."""
    forward: Callable[[Any], Any] | None = None
    """For such a service: from the value to the new key."""
    prototype: ProcessFunction[Any, Any] | None = None
    """The class form; the function form has the three below instead."""
    handler: Handler | None = None
    handler_states: tuple[str, ...] = ()
    timer_handlers: dict[str | None, tuple[Handler, tuple[str, ...]]] = field(default_factory=dict)
    """By the timer's name; None handles all other names."""
    on_open: Callable[[TaskInfo], Awaitable[None]] | None = None
    on_close: Callable[[TaskInfo], Awaitable[None]] | None = None

    def __post_init__(self) -> None:
        if self.concurrency < 1:
            raise DefinitionError(f"service {self.name!r}: concurrency must be at least 1, not {self.concurrency}")
        if self.timeout is not None and not self.timeout > 0:
            raise DefinitionError(f"service {self.name!r}: timeout must be more than 0, not {self.timeout:g} s")
        if self.guarantee not in typing.get_args(Guarantee):
            known = " or ".join(typing.get_args(Guarantee))
            raise DefinitionError(f"service {self.name!r}: guarantee must be {known}, not {self.guarantee!r}")

    @property
    def tasks(self) -> int:
        """As many as its inputs have partitions."""
        return self.inputs[0].partitions

    @property
    def event_types(self) -> tuple[Any, ...]:
        return tuple(topic.codec.type for topic in self.inputs)

    def handles_timer(self, name: str) -> bool:
        if self.prototype is not None:
            return type(self.prototype).on_timer is not ProcessFunction.on_timer
        return name in self.timer_handlers or None in self.timer_handlers

    def bind(self, states: Mapping[str, State], opened: ProcessFunction[Any, Any] | None) -> Bound:
        if opened is not None:
            mine = copy.copy(opened)
            for name, state in states.items():
                setattr(mine, name, state)
            return Bound(mine.process, (), {None: (mine.on_timer, ())})
        if self.handler is None:
            raise DefinitionError(f"service {self.name!r} has no handler")
        timers = {
            name: (handler, tuple(states[state] for state in wanted))
            for name, (handler, wanted) in self.timer_handlers.items()
        }
        return Bound(self.handler, tuple(states[name] for name in self.handler_states), timers)


class Service:
    """A keyed service of an app. Calling it calls the handler itself, for plain unit tests."""

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

    def on_timer(self, name: str | None = None) -> Callable[[Handler], Handler]:
        """Handle the timer of this name; without a name, all that have no handler of their own."""
        if callable(name):
            raise DefinitionError(f"write @{self.name}.on_timer() or @{self.name}.on_timer('name'), with the brackets")

        def register(handler: Handler) -> Handler:
            self._refuse_class_form("on_timer")
            if name in self.definition.timer_handlers:
                raise DefinitionError(f"service {self.name!r} has two handlers for the timer {name!r}; keep one")
            signature = read_signature(handler, self._names, event="timer")
            for declaration in signature.states:
                self._add_state(declaration)
            self.definition.timer_handlers[name] = (signature.call, tuple(s.name for s in signature.states))
            return handler

        return register

    def on_open(self, hook: Callable[[TaskInfo], Awaitable[None]]) -> Callable[[TaskInfo], Awaitable[None]]:
        """Run before the first record of a task."""
        self._refuse_class_form("open")
        self.definition.on_open = hook
        return hook

    def on_close(self, hook: Callable[[TaskInfo], Awaitable[None]]) -> Callable[[TaskInfo], Awaitable[None]]:
        """Run after the last record of a task."""
        self._refuse_class_form("close")
        self.definition.on_close = hook
        return hook

    def _refuse_class_form(self, method: str) -> None:
        if self.definition.prototype is not None:
            raise DefinitionError(f"{self.name} is a class: give it a method {method!r} instead")

    def _add_state(self, declaration: StateDeclaration) -> None:
        """The first declaration counts; later ones may leave its options out, but not contradict it."""
        known = self.definition.states.setdefault(declaration.name, declaration)
        if not known.agrees_with(declaration):
            raise DefinitionError(
                f"service {self.name!r}: state {declaration.name!r} is declared in two different ways"
            )


def function_service(handler: Handler, names: Mapping[str, Any], **options: Any) -> Service:
    signature = read_signature(handler, names, event="event")
    inputs = _typed(options.pop("inputs"), signature.event_type)
    definition = ServiceDefinition(
        inputs=inputs,
        states={declaration.name: declaration for declaration in signature.states},
        handler=signature.call,
        handler_states=tuple(declaration.name for declaration in signature.states),
        **options,
    )
    return Service(definition, handler, names)


def class_service(prototype: ProcessFunction[Any, Any], names: Mapping[str, Any], **options: Any) -> Service:
    _check_methods(type(prototype))
    states = read_class_states(type(prototype), names)
    inputs = _typed(options.pop("inputs"), _event_type(type(prototype)))
    definition = ServiceDefinition(
        inputs=inputs, states={declaration.name: declaration for declaration in states}, prototype=prototype, **options
    )
    return Service(definition, type(prototype), names)


def _check_methods(cls: type[ProcessFunction[Any, Any]]) -> None:
    if cls.process is ProcessFunction.process or not inspect.iscoroutinefunction(cls.process):
        raise DefinitionError(f"{cls.__qualname__} needs a method: async def process(self, ctx, event)")
    if not inspect.iscoroutinefunction(cls.on_timer):
        raise DefinitionError(f"{cls.__qualname__}.on_timer must be: async def on_timer(self, ctx, timer)")


def _event_type(cls: type) -> Any:
    for base in getattr(cls, "__orig_bases__", ()):
        if typing.get_origin(base) is ProcessFunction:
            return typing.get_args(base)[0]
    return Any


def _typed(inputs: tuple[TopicDefinition, ...], event_type: Any) -> tuple[TopicDefinition, ...]:
    """Topics without a value type take the one that the handler's annotation names."""
    if event_type is Any or isinstance(event_type, typing.TypeVar):
        return inputs
    return tuple(replace(topic, codec=codec_for(event_type)) if topic.codec.type is Any else topic for topic in inputs)
