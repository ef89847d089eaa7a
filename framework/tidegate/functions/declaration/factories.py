"""Creates services: from a function, from a ProcessFunction, or as an actor that only takes messages."""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tidegate.codecs import codec_for, type_name, types_overlap
from tidegate.errors import DefinitionError
from tidegate.functions.declaration.handler_spec import Handler, HandlerSpec
from tidegate.functions.declaration.signature import check_key_type, check_method, read_class_states, read_signature
from tidegate.functions.definition import ActorSpec, InputSpec, ServiceDefinition
from tidegate.functions.messages import MessageDefinition, marked_methods
from tidegate.functions.migrations import declared_migrations
from tidegate.functions.process import ProcessFunction
from tidegate.functions.service import Service
from tidegate.functions.topics import TopicDefinition

__all__ = ("KeyFunction", "actor_service", "class_service", "function_service")

KeyFunction = Callable[[Any], Any] | None
"""Re-keys an input by a function of its values; None: the records keep their keys."""


def function_service(
    handler: Handler, names: Mapping[str, Any], *, name: str, inputs: Sequence[tuple[TopicDefinition, KeyFunction]],
    **options: Any,
) -> Service:  # fmt: skip
    """`inputs`: topics and their key functions. `names`: local names that annotations may use."""
    signature = read_signature(handler, names, event="event")
    check_key_type(signature.label, signature.key_type, options["key_type"])
    for state in signature.states:
        state.check_initial()
    definition = ServiceDefinition(
        name=name,
        inputs=_inputs(name, inputs, signature.handler),
        states={declaration.name: declaration for declaration in signature.states},
        **options,
    )
    return Service(definition, handler, names)


def actor_service(names: Mapping[str, Any], **options: Any) -> Service:
    """A service whose only input is its mailbox. `Service.on` adds the handlers."""
    return Service(ServiceDefinition(inputs=(), **options), _no_events, names)


def _no_events(ctx: Any, event: Any) -> None:
    """The documentation of the service: it only takes messages."""


def class_service(
    prototype: ProcessFunction[Any, Any], names: Mapping[str, Any], *, name: str,
    inputs: Sequence[tuple[TopicDefinition, KeyFunction]], actor: ActorSpec, **options: Any,
) -> Service:  # fmt: skip
    cls = type(prototype)
    messages = marked_methods(cls)
    _check_methods(cls, messages, names, reads=bool(inputs), key_type=options["key_type"])
    states = read_class_states(cls, names)
    for declaration in states:
        declaration.check_initial()
    has_timers = cls.on_timer is not ProcessFunction.on_timer
    definition = ServiceDefinition(
        name=name,
        inputs=_inputs(name, inputs, HandlerSpec(method="process", event_type=_event_type(cls))),
        states={declaration.name: declaration for declaration in states},
        prototype=prototype,
        timers={None: HandlerSpec(method="on_timer")} if has_timers else {},
        actor=replace(actor, messages=messages),
        **options,
    )
    service = Service(definition, cls, names)
    for state, from_version, function in declared_migrations(cls):
        service.migrate(state, from_version=from_version)(function)
    return service


def _check_methods(
    cls: type[ProcessFunction[Any, Any]],
    messages: Mapping[str, MessageDefinition],
    names: Mapping[str, Any],
    *,
    reads: bool,
    key_type: Any,
) -> None:
    for message in messages.values():
        check_method(cls, message.handler.method, names, argument="message", key_type=key_type)
    if reads and cls.process is ProcessFunction.process:
        raise DefinitionError(f"{cls.__qualname__} needs a method: def process(self, ctx, event)")
    check_method(cls, "process", names, argument="event", key_type=key_type)
    check_method(cls, "on_timer", names, argument="timer", key_type=key_type)


def _event_type(cls: type) -> Any:
    for base in getattr(cls, "__orig_bases__", ()):
        if typing.get_origin(base) is ProcessFunction:
            return typing.get_args(base)[0]
    return Any


def _inputs(
    service: str, inputs: Sequence[tuple[TopicDefinition, KeyFunction]], handler: HandlerSpec
) -> tuple[InputSpec, ...]:
    return tuple(
        InputSpec(topic=_typed(service, topic, handler.event_type), handler=handler, key=key) for topic, key in inputs
    )


def _typed(service: str, topic: TopicDefinition, event_type: Any) -> TopicDefinition:
    """A topic without a value type gets the handler's annotated event type. A declared value type must be compatible
    with it, since otherwise the handler would get values of another type."""
    if event_type is Any or isinstance(event_type, typing.TypeVar):
        return topic
    if not types_overlap(topic.codec.type, event_type):
        raise DefinitionError(
            f"service {service!r} takes events of {type_name(event_type)}, but topic {topic.name!r} holds "
            f"{type_name(topic.codec.type)}. Change the annotation, or the topic's value_type=."
        )
    return replace(topic, codec=codec_for(event_type)) if topic.codec.type is Any else topic
