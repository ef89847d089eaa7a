"""How a service is made: of a function, of a ProcessFunction, or as an actor that takes messages only."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tidegate.codecs import codec_for, may_be, type_name
from tidegate.errors import DefinitionError
from tidegate.functions.messages import MessageDefinition, marked_methods
from tidegate.functions.migrations import declared_migrations
from tidegate.functions.process import ProcessFunction
from tidegate.functions.service import Handler, Service, ServiceDefinition
from tidegate.functions.signature import check_key_type, check_method, read_class_states, read_signature
from tidegate.functions.topics import TopicDefinition

__all__ = ("actor_service", "class_service", "function_service")


def function_service(handler: Handler, names: Mapping[str, Any], **options: Any) -> Service:
    signature = read_signature(handler, names, event="event")
    inputs = _typed(options["name"], options.pop("inputs"), signature.event_type)
    check_key_type(signature.label, signature.key_type, options["key_type"])
    for state in signature.states:
        state.check_initial()
    definition = ServiceDefinition(
        inputs=inputs,
        states={declaration.name: declaration for declaration in signature.states},
        handler=signature.call,
        handler_states=tuple(declaration.name for declaration in signature.states),
        **options,
    )
    return Service(definition, handler, names)


def actor_service(names: Mapping[str, Any], **options: Any) -> Service:
    """One that reads nothing but its mailbox; `Service.on` adds the handlers."""
    return Service(ServiceDefinition(inputs=(), states={}, handler=_no_events, **options), _no_events, names)


def _no_events(ctx: Any, event: Any) -> None:
    """Takes messages only."""


def class_service(prototype: ProcessFunction[Any, Any], names: Mapping[str, Any], **options: Any) -> Service:
    cls, inputs = type(prototype), options.pop("inputs")
    messages = marked_methods(cls)
    _check_methods(cls, messages, names, reads=bool(inputs), key_type=options["key_type"])
    states = read_class_states(cls, names)
    for declaration in states:
        declaration.check_initial()
    definition = ServiceDefinition(
        inputs=_typed(options["name"], inputs, _event_type(cls)),
        states={declaration.name: declaration for declaration in states},
        prototype=prototype,
        messages=messages,
        **options,
    )
    if messages:
        definition.check_may_take_messages()
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
        check_method(cls, message.method, names, given="message", key_type=key_type)
    if reads and cls.process is ProcessFunction.process:
        raise DefinitionError(f"{cls.__qualname__} needs a method: def process(self, ctx, event)")
    check_method(cls, "process", names, given="event", key_type=key_type)
    check_method(cls, "on_timer", names, given="timer", key_type=key_type)


def _event_type(cls: type) -> Any:
    for base in getattr(cls, "__orig_bases__", ()):
        if typing.get_origin(base) is ProcessFunction:
            return typing.get_args(base)[0]
    return Any


def _typed(label: str, inputs: tuple[TopicDefinition, ...], event_type: Any) -> tuple[TopicDefinition, ...]:
    """Topics without a value type take the one that the handler's annotation names. Those with one must fit it: else
    the handler is given what it does not expect."""
    if event_type is Any or isinstance(event_type, typing.TypeVar):
        return inputs
    for topic in inputs:
        if not may_be(topic.codec.type, event_type):
            raise DefinitionError(
                f"service {label!r} takes events of {type_name(event_type)}, but topic {topic.name!r} holds "
                f"{type_name(topic.codec.type)}. Change the annotation, or the topic's value_type=."
            )
    return tuple(replace(topic, codec=codec_for(event_type)) if topic.codec.type is Any else topic for topic in inputs)
