"""Introspection of types: their component types, whether their values are immutable, whether they have a schema."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import is_dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin, get_type_hints, is_typeddict

from msgspec import inspect

__all__ = ("UNFIT_KEYS", "classes_in", "is_fixed", "is_schemaless", "nodes_of", "takes_none")

UNFIT_KEYS: Final = (
    inspect.NoneType,
    inspect.BoolType,
    inspect.StructType,
    inspect.DataclassType,
    inspect.NamedTupleType,
    inspect.TupleType,
    inspect.VarTupleType,
    inspect.FrozenSetType,
    inspect.CustomType,
)
"""Types that cannot be keys of a JSON object."""

_FIXED: Final = (
    inspect.NoneType,
    inspect.BoolType,
    inspect.IntType,
    inspect.FloatType,
    inspect.StrType,
    inspect.BytesType,
    inspect.DateTimeType,
    inspect.DateType,
    inspect.TimeType,
    inspect.TimeDeltaType,
    inspect.UUIDType,
    inspect.DecimalType,
    inspect.EnumType,
    inspect.LiteralType,
    inspect.TupleType,
    inspect.VarTupleType,
    inspect.FrozenSetType,
    inspect.NamedTupleType,
    inspect.UnionType,
)
"""Types whose values are immutable."""


def nodes_of(type_: Any) -> list[inspect.Type]:
    """Every type that a value of this type can contain, itself first. Raises what msgspec raises for an unsupported
    type."""
    root = inspect.type_info(type_)
    found, seen = [root], {id(root)}
    for node in found:  # the list grows while it is iterated; a recursive type is visited once
        for child in _children(node):
            if id(child) not in seen:
                seen.add(id(child))
                found.append(child)
    return found


def _children(node: Any) -> Iterator[inspect.Type]:
    for name in ("item_type", "key_type", "value_type"):
        if (child := getattr(node, name, None)) is not None:
            yield child
    yield from getattr(node, "item_types", ())
    if isinstance(node, inspect.UnionType):
        yield from node.types
    for field in getattr(node, "fields", ()):
        yield field.type


def is_fixed(node: inspect.Type) -> bool:
    """Whether a value of this type is shallowly immutable."""
    if isinstance(node, inspect.StructType):
        return bool(node.cls.__struct_config__.frozen)
    if isinstance(node, inspect.DataclassType):
        if is_dataclass(node.cls):
            return bool(node.cls.__dataclass_params__.frozen)  # type: ignore[attr-defined]
        return node.cls.__setattr__.__name__ == "_frozen_setattrs"  # attrs
    return isinstance(node, _FIXED)


def is_schemaless(nodes: Iterable[inspect.Type]) -> bool:
    kinds = {type(node) for node in nodes}
    return inspect.AnyType in kinds and kinds <= {inspect.AnyType, inspect.DictType, inspect.ListType, inspect.StrType}


def takes_none(type_: Any) -> bool:
    """Whether None is a value of this type."""
    type_ = getattr(type_, "__value__", getattr(type_, "__supertype__", type_))  # an alias, a NewType
    origin = get_origin(type_)
    if origin is Annotated:
        return takes_none(get_args(type_)[0])
    if origin is Union or origin is UnionType:
        return any(map(takes_none, get_args(type_)))
    return type_ in (Any, None, NoneType, object)


def classes_in(type_: Any, seen: set[int] | None = None) -> Iterator[Any]:
    """The classes in a type: itself, the arguments of generics, the field types of dataclasses and the like."""
    seen = set() if seen is None else seen
    if id(type_) in seen:
        return
    seen.add(id(type_))
    for part in get_args(type_):
        yield from classes_in(part, seen)
    cls = get_origin(type_) or type_
    if not isinstance(cls, type):
        return
    yield cls
    if is_dataclass(cls) or is_typeddict(cls) or hasattr(cls, "_field_defaults"):
        try:
            hints = get_type_hints(cls, include_extras=True)
        except (NameError, TypeError):
            return  # the library that decodes this class raises the better error
        for hint in hints.values():
            yield from classes_in(hint, seen)
