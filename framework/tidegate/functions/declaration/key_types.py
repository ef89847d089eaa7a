"""The key types of topics and services: as declared, else that of the field from which keys are taken."""

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


_WRITTEN_AS_THEIR_BASE: Final = (str, int, bytes, dict, list, set)


class KeyedInput(NamedTuple):
    """An input of a service, and how the service keys it."""

    topic: TopicDefinition
    rekeyed: bool
    field: str | None
    """The field in key_by=; None: it is a function, or the input is not re-keyed."""


def service_key_type(service: str, inputs: Iterable[KeyedInput]) -> Any:
    """The common key type of the inputs, by default text. Raises DefinitionError if they have several."""
    found: dict[str, Any] = {}
    for topic, rekeyed, field in inputs:
        unsaid = ("default", "field") if rekeyed else ("default",)
        known = None if topic.key_type_from in unsaid else topic.key_type
        if field is not None:
            known = field_key_type(topic.codec.type, field) or known
        if known is not None:
            found[topic.name] = known
    kinds = list({type_name(kind): kind for kind in found.values()}.values())
    if len(kinds) > 1:
        said = ", ".join(f"{name!r} of {type_name(kind)}" for name, kind in found.items())
        raise DefinitionError(f"service {service!r} has keys of several types ({said}): say which, with key_type=...")
    return kinds[0] if kinds else str


def field_key_type(value_type: Any, field: str) -> Any:
    """The type of the keys that are taken from this field of the values; None if unknown."""
    kinds = {type_name(kind): kind for part in _parts(value_type) for kind in (_of_field(part, field),)}
    return next(iter(kinds.values())) if len(kinds) == 1 else None


def _parts(value_type: Any) -> list[Any]:
    """The types that a value may have, besides None."""
    while True:
        if get_origin(value_type) is Annotated:
            value_type = get_args(value_type)[0]
        elif hasattr(value_type, "__supertype__"):  # of a NewType
            value_type = value_type.__supertype__
        elif hasattr(value_type, "__value__") and not isinstance(value_type, type):  # of an alias: `type X = ...`
            value_type = value_type.__value__
        else:
            break
    if get_origin(value_type) in (Union, types.UnionType):
        return [part for argument in get_args(value_type) for part in _parts(argument) if part is not types.NoneType]
    return [value_type]


def _of_field(cls: Any, field: str) -> Any:
    cls = get_origin(cls) or cls
    attribute = getattr(cls, field, None)
    try:
        if isinstance(attribute, property):
            hint = typing.get_type_hints(attribute.fget).get("return")
        else:
            hint = typing.get_type_hints(cls).get(field)
    except (NameError, TypeError, AttributeError):  # an annotation that nothing can resolve, or no class at all
        return None
    return _key_type(hint)


def _key_type(hint: Any) -> Any:
    """The type that decodes the bytes of such a key; None: it has several types, or one that cannot be decoded."""
    parts = _parts(hint)
    if len(parts) != 1:
        return None
    (kind,) = parts
    if get_origin(kind) is Literal:  # its values are written as what they are, without the quotes of JSON
        kinds = {type(value) for value in get_args(kind)}
        kind = kinds.pop() if len(kinds) == 1 else None
        return kind if kind in (str, int) else None
    if kind in (str, int, bytes):
        return kind
    if kind in (Any, object) or not isinstance(kind, type) or get_origin(kind) is not None:
        return None
    if issubclass(kind, _WRITTEN_AS_THEIR_BASE) and kind is not bool and not issubclass(kind, Enum):
        return None
    try:
        msgspec.json.Decoder(kind)
    except (TypeError, ValueError):
        return None
    return kind
