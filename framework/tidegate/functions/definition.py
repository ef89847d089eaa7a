"""The definition of a service: frozen, and all that the engine needs to know of it. `Service` collects it from
declarations, the plan of a run completes it."""

from __future__ import annotations

import copy
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, Self

from tidegate.errors import DefinitionError
from tidegate.functions.context import TaskInfo
from tidegate.functions.declaration.handler_call import BoundHandler
from tidegate.functions.declaration.handler_spec import HandlerSpec, InputHandler
from tidegate.functions.messages import MessageDefinition
from tidegate.functions.migrations import Migration
from tidegate.functions.policies import STOP, ErrorPolicy
from tidegate.functions.process import ProcessFunction
from tidegate.functions.shuffle_steps import ShuffleSteps
from tidegate.functions.topics import TopicDefinition
from tidegate.keys import KEY_GROUPS
from tidegate.state.declaration import StateDeclaration
from tidegate.state.kinds import State

__all__ = (
    "ActorSpec",
    "Bound",
    "ExecutionSpec",
    "Guarantee",
    "InputSpec",
    "LifecycleHook",
    "LifecycleHooks",
    "ServiceDefinition",
)

Guarantee = Literal["exactly_once", "at_least_once"]
LifecycleHook = Callable[[TaskInfo], Any]
"""A `def` or an `async def`."""
_DAY_MS: Final = 24 * 3_600_000


@dataclass(frozen=True, kw_only=True)
class InputSpec:
    """One input of a service."""

    topic: TopicDefinition
    handler: InputHandler
    key: Callable[[Any], Any] | None = None
    """From a value to the key under which the service wants it; None: as the records are keyed."""
    shuffle: ShuffleSteps | None = None
    """What is done with its values before they reach the service; None: nothing."""
    broadcast: bool = False
    """Every task reads all of the topic. Such an input has no say in where keys belong."""


@dataclass(frozen=True, kw_only=True)
class ExecutionSpec:
    """How the tasks of a service run its handlers."""

    parallelism: int | None = None
    """How many tasks it wants, whatever its input topics have; None: as many as those have partitions."""
    concurrency: int = 1000
    """How many handlers of one task may wait at the same time."""
    timeout: float | None = None
    """Seconds that a handler may take."""
    guarantee: Guarantee = "exactly_once"
    threads: int | None = None
    """How many threads of a worker run its handlers, which are plain functions then; None: the event loop runs them."""

    def check(self, service: str) -> None:
        if self.concurrency < 1:
            raise DefinitionError(f"service {service!r}: concurrency must be at least 1, not {self.concurrency}")
        if self.parallelism is not None and not 1 <= self.parallelism <= KEY_GROUPS:
            raise DefinitionError(
                f"service {service!r}: parallelism must be from 1 to {KEY_GROUPS}, not {self.parallelism}"
            )
        if self.timeout is not None and not self.timeout > 0:
            raise DefinitionError(f"service {service!r}: timeout must be more than 0, not {self.timeout:g} s")
        if self.threads is not None and self.threads < 1:
            raise DefinitionError(f"service {service!r}: threads must be at least 1, not {self.threads}")
        if self.guarantee not in typing.get_args(Guarantee):
            known = " or ".join(typing.get_args(Guarantee))
            raise DefinitionError(f"service {service!r}: guarantee must be {known}, not {self.guarantee!r}")


@dataclass(frozen=True, kw_only=True)
class ActorSpec:
    """What a service takes as an actor."""

    messages: Mapping[str, MessageDefinition] = field(default_factory=dict)
    """By name. Without any it has no mailbox."""
    partitions: int = 0
    """Of the mailbox, where it is the only input; 0: what the settings say."""
    remember_ms: int = _DAY_MS
    """How long idempotency keys are known."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "messages", MappingProxyType(dict(self.messages)))


@dataclass(frozen=True, kw_only=True)
class LifecycleHooks:
    """Run before the first record of a task and after the last one, in the function form."""

    open: LifecycleHook | None = None
    close: LifecycleHook | None = None


class Bound(NamedTuple):
    """The handlers of a service with one set of state objects."""

    inputs: Mapping[str, BoundHandler]
    """By topic: `call(ctx, event, *states)`. Only inputs which the users' handlers take."""
    timers: Mapping[str | None, BoundHandler]
    """By the timer's name: `call(ctx, timer, *states)`."""
    messages: Mapping[str, BoundHandler]
    """By the message's name: `call(ctx, message, *states)`."""


@dataclass(frozen=True, kw_only=True)
class ServiceDefinition:
    """All that the engine needs to know of a service."""

    name: str
    inputs: tuple[InputSpec, ...]
    outputs: Mapping[str, TopicDefinition]
    """By name; the first is the default one."""
    states: Mapping[str, StateDeclaration] = field(default_factory=dict)
    key_type: Any = str
    errors: ErrorPolicy = STOP
    execution: ExecutionSpec = ExecutionSpec()
    actor: ActorSpec = ActorSpec()
    prototype: ProcessFunction[Any, Any] | None = None
    """Of the class form; None: its handlers are functions."""
    timers: Mapping[str | None, HandlerSpec] = field(default_factory=dict)
    """By the timer's name; None handles all other names."""
    migrations: Mapping[tuple[str, int], Migration] = field(default_factory=dict)
    """By the state's name and the version that they begin with."""
    hooks: LifecycleHooks = LifecycleHooks()
    part_of: str | None = None
    """The service that the plan made this one for, such as a shuffle before it; None: it was declared."""

    def __post_init__(self) -> None:
        for name in ("outputs", "states", "timers", "migrations"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))
        self.execution.check(self.name)
        if not isinstance(self.errors, ErrorPolicy):
            raise DefinitionError(
                f"service {self.name!r}: errors must be STOP, SKIP, DEAD_LETTER or retry(...), not {self.errors!r}"
            )
        if self.execution.threads is not None:
            self._refuse_async_handlers()
        if self.messages and self.execution.guarantee == "at_least_once":
            raise DefinitionError(
                f"service {self.name!r} is at_least_once: its replies would leave before they are committed. "
                f"Leave guarantee= out, or take messages in a service of their own."
            )

    def _refuse_async_handlers(self) -> None:
        handlers = (*(spec.handler for spec in self.inputs), *self.timers.values())
        handlers += tuple(message.handler for message in self.messages.values())
        for handler in handlers:
            if isinstance(handler, HandlerSpec) and handler.is_async(self.prototype):
                raise DefinitionError(
                    f"service {self.name!r}: threads={self.execution.threads} runs plain functions in threads, but "
                    f"{handler.label} is an 'async def'. Write it as a 'def' that blocks, or leave threads= out: an "
                    f"async handler lets others go on while it awaits"
                )

    # -- inputs ------------------------------------------------------------------------------------------------------
    @property
    def topics(self) -> tuple[TopicDefinition, ...]:
        """Of its inputs."""
        return tuple(spec.topic for spec in self.inputs)

    def reading(self, change: Callable[[TopicDefinition], TopicDefinition]) -> Self:
        """The same service with other input topics."""
        return replace(self, inputs=tuple(replace(spec, topic=change(spec.topic)) for spec in self.inputs))

    @property
    def shuffled(self) -> bool:
        """Whether it wants any input under another key, or changed by the steps of a shuffle."""
        return any(spec.key is not None or spec.shuffle is not None for spec in self.inputs)

    @property
    def mailbox(self) -> TopicDefinition | None:
        """Where its messages lie; the plan adds it to the inputs."""
        return next((topic for topic in self.topics if topic.mailbox), None)

    # -- tasks and keys ----------------------------------------------------------------------------------------------
    @cached_property
    def placement(self) -> TopicDefinition:
        """The input topic whose partitions say where a key belongs: as all inputs are co-partitioned, any does that is
        not broadcast."""
        found = next((spec.topic for spec in self.inputs if not spec.broadcast), None)
        if found is None:
            raise DefinitionError(f"service {self.name!r} has no input that is divided by key")
        return found

    @property
    def tasks(self) -> int:
        """As many as its inputs have partitions."""
        return self.placement.partitions

    def task_for(self, key: bytes) -> int:
        """The number of the task in which a key belongs."""
        return self.placement.partition_for(key)

    # -- handlers ----------------------------------------------------------------------------------------------------
    @property
    def messages(self) -> Mapping[str, MessageDefinition]:
        """What it takes as an actor, by name."""
        return self.actor.messages

    def handles_timer(self, name: str) -> bool:
        return name in self.timers or None in self.timers

    def bind(self, states: Mapping[str, State], opened: ProcessFunction[Any, Any] | None) -> Bound:
        """`opened`: the task's object of the class form, after `open`."""
        mine = None if opened is None else _with_states(opened, states)
        handlers = {spec.topic.name: spec.handler for spec in self.inputs}
        return Bound(
            {
                topic: handler.bind(states, mine)
                for topic, handler in handlers.items()
                if isinstance(handler, HandlerSpec)
            },
            {name: handler.bind(states, mine) for name, handler in self.timers.items()},
            {name: message.handler.bind(states, mine) for name, message in self.messages.items()},
        )


def _with_states(opened: ProcessFunction[Any, Any], states: Mapping[str, State]) -> ProcessFunction[Any, Any]:
    mine = copy.copy(opened)
    for name, state in states.items():
        if name in vars(mine):
            raise DefinitionError(
                f"{type(mine).__qualname__}.{name} is a state, so __init__ and open leave it alone: say what "
                f"it is before it is set in its annotation, Annotated[ValueState[...], Default(...)]"
            )
        setattr(mine, name, state)
    return mine
