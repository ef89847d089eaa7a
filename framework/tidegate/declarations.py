"""The inputs, keys and outputs of a service, from the arguments of `app.process` and `app.actor`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypedDict, TypeVar

from tidegate.errors import DefinitionError
from tidegate.functions.declaration.factories import KeyFunction
from tidegate.functions.declaration.key_types import KeyedInput
from tidegate.functions.declaration.validation import KeyBy, check_field, key_function
from tidegate.functions.definition import Guarantee
from tidegate.functions.policies import ErrorPolicy
from tidegate.functions.topics import TopicDefinition
from tidegate.time.clock import Duration
from tidegate.time.sources import EventTime, TimeSource
from tidegate.time.watermarks import WatermarkStrategy
from tidegate.topics import Topic, definition_of

__all__ = (
    "ActorOptions",
    "Inputs",
    "KeyOf",
    "Outputs",
    "ProcessOptions",
    "TopicOptions",
    "inputs_of",
    "key_functions",
    "keyed_inputs",
    "outputs_of",
)

T = TypeVar("T")

Inputs = tuple[Topic[Any], ...]
Outputs = Topic[Any] | Sequence[Topic[Any]] | Mapping[str, Topic[Any]]
KeyOf = KeyBy[T] | Mapping[Topic[Any], KeyBy[Any]]


class TopicOptions(TypedDict, total=False):
    """The options of `app.topic` other than `value_type` and `key`."""

    key_type: Any
    partitions: int | None
    retention: Duration | None
    retention_bytes: int | None
    compact: bool
    time: TimeSource | None
    watermark: WatermarkStrategy | None


class ProcessOptions(TypedDict, total=False):
    """The options of `app.process` other than the topics and `key_by`."""

    to: Outputs
    name: str | None
    key_type: Any
    parallelism: int | None
    errors: ErrorPolicy
    timeout: Duration | None
    concurrency: int
    threads: int | None
    guarantee: Guarantee
    remember: Duration


class ActorOptions(TypedDict, total=False):
    """The options of `app.actor` other than the handler and `key_type`."""

    to: Outputs
    name: str | None
    errors: ErrorPolicy
    timeout: Duration | None
    concurrency: int
    threads: int | None
    partitions: int | None
    remember: Duration


def inputs_of(service: str, inputs: Inputs) -> tuple[TopicDefinition, ...]:
    if not inputs:
        raise DefinitionError(
            f"service {service!r} reads no topic: write @app.process(topic, ...). "
            f"For a service that only takes messages, write app.actor({service!r})."
        )
    definitions = tuple(definition_of(f"service {service!r} reads", topic) for topic in inputs)
    for topic in definitions:
        if isinstance(topic.time, EventTime):
            check_field(f"topic {topic.name!r} takes its time from", topic.time.of, topic.codec.type)
    if len(set(inputs)) < len(inputs):
        raise DefinitionError(f"service {service!r} reads a topic twice; name each input topic once")
    return definitions


def outputs_of(service: str, to: Outputs) -> dict[str, TopicDefinition]:
    if isinstance(to, Mapping):
        named: list[tuple[str, Any]] = list(to.items())
    else:
        topics = [to] if isinstance(to, Topic | str) or not isinstance(to, Iterable) else list(to)
        named = [(getattr(topic, "name", repr(topic)), topic) for topic in topics]
    definitions = {name: definition_of(f"service {service!r} emits to", topic) for name, topic in named}
    if len(definitions) != len(named):
        raise DefinitionError(f"service {service!r}: to= names a topic twice; name each output topic once")
    return definitions


def key_functions(inputs: Inputs, key_by: KeyOf[Any] | None) -> tuple[KeyFunction, ...]:
    """The key function of each input; None: the input is not re-keyed."""
    if key_by is None:
        return (None,) * len(inputs)
    if isinstance(key_by, Mapping):
        missing = [topic.name for topic in inputs if topic not in key_by]
        if missing:
            raise DefinitionError(f"key_by= has no key for {', '.join(missing)}; give one for each input topic")
        keys: list[KeyBy[Any]] = [key_by[topic] for topic in inputs]
    else:
        keys = [key_by] * len(inputs)
    for topic, key in zip(inputs, keys, strict=True):
        check_field(f"key_by= takes the key of {topic.name!r} from", key, topic.definition.codec.type)
    return tuple(map(key_function, keys))


def keyed_inputs(inputs: Inputs, key_by: KeyOf[Any] | None) -> list[KeyedInput]:
    keys = [key_by.get(topic) if isinstance(key_by, Mapping) else key_by for topic in inputs]
    return [
        KeyedInput(topic.definition, rekeyed=key is not None, field=key if isinstance(key, str) else None)
        for topic, key in zip(inputs, keys, strict=True)
    ]
