"""The key types of topics and services: as declared, or inferred from the field that the keys are taken from."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterable
from enum import Enum
from typing import Annotated, Any, Final, Literal, NamedTuple, Union, get_args, get_origin

import msgspec

from tidegate.codecs import type_name
from tidegate.errors import DefinitionError
from tidegate.functions.topics import TopicDefinition

__all__ = ("KeyedInput", "field_key_type", "service_key_type")


_ENCODED_AS_BASE: Final = (str, int, bytes, dict, list, set)
"""Instances of their subclasses are encoded like those of the base class, so a decoder cannot restore the subclass."""


class KeyedInput(NamedTuple):
    """An input of a service and the origin of its keys."""

    topic: TopicDefinition
    rekeyed: bool
    field: str | None
    """The field that key_by= names; None: key_by= is a function, or the input is not re-keyed."""


def service_key_type(service: str, inputs: Iterable[KeyedInput]) -> Any:
    """The common key type of the inputs; default: str. DefinitionError: the inputs have different key types."""
    key_types: dict[str, Any] = {}
    for topic, rekeyed, field in inputs:
        undeclared = ("default", "field") if rekeyed else ("default",)
        key_type = None if topic.key_type_from in undeclared else topic.key_type
        if field is not None:
            key_type = field_key_type(topic.codec.type, field) or key_type
        if key_type is not None:
            key_types[topic.name] = key_type
    distinct = list({type_name(key_type): key_type for key_type in key_types.values()}.values())
    if len(distinct) > 1:
        listed = ", ".join(f"{name!r} of {type_name(key_type)}" for name, key_type in key_types.items())
        raise DefinitionError(f"service {service!r} has keys of several types ({listed}): declare one with key_type=")
    return distinct[0] if distinct else str


def field_key_type(value_type: Any, field: str) -> Any:
    """The type of keys taken from this field of the values; None: unknown."""
    key_types = [_field_type(member, field) for member in _members(value_type)]
    distinct = {type_name(key_type): key_type for key_type in key_types}
    return next(iter(distinct.values())) if len(distinct) == 1 else None


def _members(value_type: Any) -> list[Any]:
    """The members of a union without None; of any other type, the type itself."""
    while True:
        if get_origin(value_type) is Annotated:
            value_type = get_args(value_type)[0]
        elif hasattr(value_type, "__supertype__"):  # a NewType
            value_type = value_type.__supertype__
        elif hasattr(value_type, "__value__") and not isinstance(value_type, type):  # an alias: `type X = ...`
            value_type = value_type.__value__
        else:
            break
    if get_origin(value_type) not in (Union, types.UnionType):
        return [value_type]
    members = [member for argument in get_args(value_type) for member in _members(argument)]
    return [member for member in members if member is not types.NoneType]


def _field_type(cls: Any, field: str) -> Any:
    cls = get_origin(cls) or cls
    attribute = getattr(cls, field, None)
    try:
        if isinstance(attribute, property):
            hint = typing.get_type_hints(attribute.fget).get("return")
        else:
            hint = typing.get_type_hints(cls).get(field)
    except (NameError, TypeError, AttributeError):  # an unresolvable annotation, or not a class
        return None
    return _key_type(hint)


def _key_type(hint: Any) -> Any:
    """The type as which the bytes of such a key are decoded; None: there are several, or it cannot be decoded."""
    members = _members(hint)
    if len(members) != 1:
        return None
    (key_type,) = members
    if get_origin(key_type) is Literal:  # encoded like their types, so that text has no quotes
        value_types = {type(value) for value in get_args(key_type)}
        key_type = value_types.pop() if len(value_types) == 1 else None
        return key_type if key_type in (str, int) else None
    if key_type in (str, int, bytes):
        return key_type
    if key_type in (Any, object) or not isinstance(key_type, type) or get_origin(key_type) is not None:
        return None
    if issubclass(key_type, _ENCODED_AS_BASE) and key_type is not bool and not issubclass(key_type, Enum):
        return None
    try:
        msgspec.json.Decoder(key_type)
    except (TypeError, ValueError):
        return None
    return key_type
