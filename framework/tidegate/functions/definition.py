"""ServiceDefinition: the immutable description of a service that the engine runs. `Service` builds it from
declarations, and the plan of a run completes it."""

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
    "BoundHandlers",
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
    """The key function that re-keys the input; None: the records keep their keys."""
    shuffle: ShuffleSteps | None = None
    """The steps of the shuffle before the service; None: there are none."""
    broadcast: bool = False
    """Every task reads the whole topic. Such an input does not affect the partitioning of keys."""


@dataclass(frozen=True, kw_only=True)
class ExecutionSpec:
    """How the tasks of a service run its handlers."""

    parallelism: int | None = None
    """The number of tasks; None: the number of partitions of the input topics."""
    concurrency: int = 1000
    """The number of handlers of one task that may be suspended at the same time."""
    timeout: float | None = None
    """The longest time that a handler may take, in seconds."""
    guarantee: Guarantee = "exactly_once"
    threads: int | None = None
    """The number of threads per worker that run its handlers, which are plain functions; None: the event loop runs
    them."""

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
    """The messages of a service, and its mailbox."""

    messages: Mapping[str, MessageDefinition] = field(default_factory=dict)
    """By name. A service without messages has no mailbox."""
    partitions: int = 0
    """The partitions of the mailbox, if it is the only input; 0: as in the settings."""
    remember_ms: int = _DAY_MS
    """How long idempotency keys are remembered."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "messages", MappingProxyType(dict(self.messages)))


@dataclass(frozen=True, kw_only=True)
class LifecycleHooks:
    """Functions that run before the first record of a task and after the last one. A class has methods instead."""

    open: LifecycleHook | None = None
    close: LifecycleHook | None = None


class BoundHandlers(NamedTuple):
    """The handlers of a service with one set of state handles."""

    inputs: Mapping[str, BoundHandler]
    """By topic: `call(ctx, event, *states)`. Without the inputs of the engine's own operators."""
    timers: Mapping[str | None, BoundHandler]
    """By the timer's name: `call(ctx, timer, *states)`."""
    messages: Mapping[str, BoundHandler]
    """By the message's name: `call(ctx, message, *states)`."""


@dataclass(frozen=True, kw_only=True)
class ServiceDefinition:
    """The immutable description of a service."""

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
    """The object that each task copies; None: the handlers are functions."""
    timers: Mapping[str | None, HandlerSpec] = field(default_factory=dict)
    """By timer name; the handler under None takes all other names."""
    migrations: Mapping[tuple[str, int], Migration] = field(default_factory=dict)
    """By state name and old version."""
    hooks: LifecycleHooks = LifecycleHooks()
    part_of: str | None = None
    """The declared service that needs this one, such as the service behind a shuffle; None: it was declared itself."""

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
                    f"{handler.label} is an 'async def'. Write it as a 'def' that blocks, or leave threads= out: while "
                    f"an async handler awaits, others run"
                )

    # -- inputs ------------------------------------------------------------------------------------------------------
    @property
    def topics(self) -> tuple[TopicDefinition, ...]:
        """The input topics."""
        return tuple(spec.topic for spec in self.inputs)

    def with_input_topics(self, change: Callable[[TopicDefinition], TopicDefinition]) -> Self:
        """The same service with other input topics."""
        return replace(self, inputs=tuple(replace(spec, topic=change(spec.topic)) for spec in self.inputs))

    @property
    def shuffled(self) -> bool:
        """Whether there is a shuffle before any input."""
        return any(spec.key is not None or spec.shuffle is not None for spec in self.inputs)

    @property
    def mailbox(self) -> TopicDefinition | None:
        """The topic of its messages, which the plan adds to the inputs."""
        return next((topic for topic in self.topics if topic.mailbox), None)

    # -- tasks and keys ----------------------------------------------------------------------------------------------
    @cached_property
    def placement(self) -> TopicDefinition:
        """The input topic that determines the task of a key. All inputs that are not broadcast are co-partitioned, so
        the first one of them does."""
        topic = next((spec.topic for spec in self.inputs if not spec.broadcast), None)
        if topic is None:
            raise DefinitionError(f"service {self.name!r} has only broadcast inputs; it needs one partitioned by key")
        return topic

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
        """Its messages, by name."""
        return self.actor.messages

    def handles_timer(self, name: str) -> bool:
        return name in self.timers or None in self.timers

    def bind(self, states: Mapping[str, State], opened: ProcessFunction[Any, Any] | None) -> BoundHandlers:
        """`opened`: the task's ProcessFunction, after its `open`."""
        instance = None if opened is None else _with_states(opened, states)
        handlers = {spec.topic.name: spec.handler for spec in self.inputs}
        return BoundHandlers(
            {
                topic: handler.bind(states, instance)
                for topic, handler in handlers.items()
                if isinstance(handler, HandlerSpec)
            },
            {name: handler.bind(states, instance) for name, handler in self.timers.items()},
            {name: message.handler.bind(states, instance) for name, message in self.messages.items()},
        )


def _with_states(opened: ProcessFunction[Any, Any], states: Mapping[str, State]) -> ProcessFunction[Any, Any]:
    instance = copy.copy(opened)
    for name, state in states.items():
        if name in vars(instance):
            raise DefinitionError(
                f"{type(instance).__qualname__}.{name} is a state, so __init__ and open must not assign it: declare "
                f"its default in the annotation, Annotated[ValueState[...], Default(...)]"
            )
        setattr(instance, name, state)
    return instance
