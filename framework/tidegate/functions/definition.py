"""The frozen definition of a service, from which the engine runs it. `Service` collects it from declarations, and the
plan of a run completes it."""

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
    """Returns the key of a value for this service; None: the key of the record."""
    shuffle: ShuffleSteps | None = None
    """The steps that a shuffle applies to the values first; None: no steps."""
    broadcast: bool = False
    """Every task reads the whole topic. Such an input does not determine the placement of keys."""


@dataclass(frozen=True, kw_only=True)
class ExecutionSpec:
    """How the tasks of a service run its handlers."""

    parallelism: int | None = None
    """The number of tasks; None: the number of partitions of the inputs."""
    concurrency: int = 1000
    """How many handlers of one task may be suspended at the same time."""
    timeout: float | None = None
    """The time limit of a handler, in seconds."""
    guarantee: Guarantee = "exactly_once"
    threads: int | None = None
    """The number of threads per worker for its handlers, which must be plain functions; None: the event loop."""

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
    """The messages that a service handles as an actor."""

    messages: Mapping[str, MessageDefinition] = field(default_factory=dict)
    """By name. Without messages the service has no mailbox."""
    partitions: int = 0
    """The partitions of the mailbox, if it is the only input; 0: those of the settings."""
    remember_ms: int = _DAY_MS
    """How long idempotency keys are kept."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "messages", MappingProxyType(dict(self.messages)))


@dataclass(frozen=True, kw_only=True)
class LifecycleHooks:
    """The hooks of the function form, before the first record of a task and after the last one."""

    open: LifecycleHook | None = None
    close: LifecycleHook | None = None


class Bound(NamedTuple):
    """The handlers of a service with one set of state objects."""

    inputs: Mapping[str, BoundHandler]
    """By topic: `call(ctx, event, *states)`. Only inputs with a user's handler."""
    timers: Mapping[str | None, BoundHandler]
    """By the timer's name: `call(ctx, timer, *states)`."""
    messages: Mapping[str, BoundHandler]
    """By the message's name: `call(ctx, message, *states)`."""


@dataclass(frozen=True, kw_only=True)
class ServiceDefinition:
    """The complete declaration of a service."""

    name: str
    inputs: tuple[InputSpec, ...]
    outputs: Mapping[str, TopicDefinition]
    """By name; the first is the default output."""
    states: Mapping[str, StateDeclaration] = field(default_factory=dict)
    key_type: Any = str
    errors: ErrorPolicy = STOP
    execution: ExecutionSpec = ExecutionSpec()
    actor: ActorSpec = ActorSpec()
    prototype: ProcessFunction[Any, Any] | None = None
    """The prototype of the class form; None: the handlers are functions."""
    timers: Mapping[str | None, HandlerSpec] = field(default_factory=dict)
    """By the timer's name; None handles all other names."""
    migrations: Mapping[tuple[str, int], Migration] = field(default_factory=dict)
    """By the state's name and the version that they migrate from."""
    hooks: LifecycleHooks = LifecycleHooks()
    part_of: str | None = None
    """The declared service for which the plan added this one, such as a shuffle; None: it is declared itself."""

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
                f"service {self.name!r} is at_least_once: its replies would be sent before they are committed. "
                f"Leave guarantee= out, or handle messages in a separate service."
            )

    def _refuse_async_handlers(self) -> None:
        handlers = (*(spec.handler for spec in self.inputs), *self.timers.values())
        handlers += tuple(message.handler for message in self.messages.values())
        for handler in handlers:
            if isinstance(handler, HandlerSpec) and handler.is_async(self.prototype):
                raise DefinitionError(
                    f"service {self.name!r}: threads={self.execution.threads} runs plain functions in threads, but "
                    f"{handler.label} is an 'async def'. Write it as a 'def' that blocks, or leave threads= out: other "
                    f"handlers run while an async handler awaits"
                )

    # -- inputs ------------------------------------------------------------------------------------------------------
    @property
    def topics(self) -> tuple[TopicDefinition, ...]:
        """The topics of its inputs."""
        return tuple(spec.topic for spec in self.inputs)

    def reading(self, change: Callable[[TopicDefinition], TopicDefinition]) -> Self:
        """The same service with other input topics."""
        return replace(self, inputs=tuple(replace(spec, topic=change(spec.topic)) for spec in self.inputs))

    @property
    def shuffled(self) -> bool:
        """Whether any input is re-keyed, or has steps for a shuffle."""
        return any(spec.key is not None or spec.shuffle is not None for spec in self.inputs)

    @property
    def mailbox(self) -> TopicDefinition | None:
        """The topic of its messages; the plan adds it to the inputs."""
        return next((topic for topic in self.topics if topic.mailbox), None)

    # -- tasks and keys ----------------------------------------------------------------------------------------------
    @cached_property
    def placement(self) -> TopicDefinition:
        """The input topic whose partitions determine the task of a key. All inputs that are not broadcast are
        co-partitioned, so any of them does."""
        found = next((spec.topic for spec in self.inputs if not spec.broadcast), None)
        if found is None:
            raise DefinitionError(f"service {self.name!r} has no input that is partitioned by key; add one")
        return found

    @property
    def tasks(self) -> int:
        """The number of tasks: that of the partitions of its inputs."""
        return self.placement.partitions

    def task_for(self, key: bytes) -> int:
        """The number of the task that owns a key."""
        return self.placement.partition_for(key)

    # -- handlers ----------------------------------------------------------------------------------------------------
    @property
    def messages(self) -> Mapping[str, MessageDefinition]:
        """The messages that it handles as an actor, by name."""
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
                f"{type(mine).__qualname__}.{name} is a state, so __init__ and open must not assign it: give its "
                f"default in the annotation, Annotated[ValueState[...], Default(...)]"
            )
        setattr(mine, name, state)
    return mine
