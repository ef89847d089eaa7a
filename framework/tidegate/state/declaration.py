"""State declarations: read from a handler's signature or a class attribute."""

from __future__ import annotations

import typing
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal

from tidegate.codecs import Codec, codec_for, type_name
from tidegate.errors import DefinitionError
from tidegate.state.kinds import (
    TTL,
    Aggregate,
    AggregateFunction,
    AggregatingState,
    Default,
    ListState,
    MapState,
    OperatorState,
    Queryable,
    Redistribute,
    Reduce,
    ReducingState,
    State,
    ValueState,
    Version,
)
from tidegate.type_info import takes_none

__all__ = ("StateDeclaration", "declare")

Kind = Literal["value", "list", "map", "reducing", "aggregating", "operator"]

_KINDS: dict[Any, Kind] = {
    ValueState: "value",
    ListState: "list",
    MapState: "map",
    ReducingState: "reducing",
    AggregatingState: "aggregating",
    OperatorState: "operator",
}

_FITTING: dict[type, tuple[Kind, ...]] = {
    Default: ("value", "map"),
    TTL: ("value", "list", "map", "reducing", "aggregating"),
    Reduce: ("reducing",),
    Aggregate: ("aggregating",),
    Redistribute: ("operator",),
    Queryable: typing.get_args(Kind),
    Version: typing.get_args(Kind),
}
"""The kinds of state that each option applies to."""


@dataclass(frozen=True, kw_only=True)
class StateDeclaration:
    name: str
    kind: Kind
    codec: Codec[Any]
    """The codec of the stored value: a value, an entry's value, an item, an accumulator."""
    key_type: Any = None
    """The type of a map's keys."""
    default: Default | None = None
    ttl: TTL | None = None
    function: Any = None
    """The function of a reducing or aggregating state."""
    redistribute: Redistribute = field(default_factory=Redistribute)
    version: int = 1
    queryable: bool = True
    """Whether queries can read it."""

    def check_initial(self) -> None:
        """A value that is not set reads as its default, or as None: the type must allow what is read."""
        default = self.default
        if self.kind != "value" or takes_none(self.codec.type):
            return
        if default is None or (default.factory is None and default.value is None):
            written = type_name(self.codec.type)
            optional = "" if self.codec.type is bytes else f"ValueState[{written} | None], or "  # stored in another way
            raise DefinitionError(
                f"state {self.name!r}: a ValueState[{written}] has no value before it is set. Write {optional}"
                f"Annotated[ValueState[{written}], {_example(self.codec.type)}]"
            )

    def agrees_with(self, other: StateDeclaration) -> bool:
        """Whether another declaration of the same state is consistent with this one."""
        if (self.kind, self.codec.type, self.key_type) != (other.kind, other.codec.type, other.key_type):
            return False
        return other.ttl in (None, self.ttl) and other.version in (1, self.version)


def declare(name: str, annotation: Any) -> StateDeclaration | None:
    """Reads one annotation; None: it is not a state."""
    options: tuple[Any, ...] = ()
    if typing.get_origin(annotation) is Annotated:
        annotation, *rest = typing.get_args(annotation)
        options = tuple(rest)
    origin = typing.get_origin(annotation) or annotation
    if not (isinstance(origin, type) and issubclass(origin, State)):
        return None
    kind = _KINDS.get(origin)
    if kind is None:
        raise DefinitionError(f"state {name!r}: use ValueState, ListState, MapState, ReducingState or AggregatingState")
    return _Reader(name, kind, typing.get_args(annotation), options).read()


class _Reader:
    """Creates a declaration from a kind, its type arguments and its options. DefinitionError: they do not fit."""

    def __init__(self, name: str, kind: Kind, arguments: tuple[Any, ...], options: tuple[Any, ...]) -> None:
        self.name, self.kind, self.arguments = name, kind, arguments
        self.options = {type(option): option for option in options}
        for option in options:
            self._refuse_unfit(option)

    def _refuse_unfit(self, option: Any) -> None:
        """DefinitionError: the option would have no effect."""
        if isinstance(option, type) and option in _FITTING:
            name = option.__name__
            raise DefinitionError(f"state {self.name!r}: {name} needs its arguments; write {name}(...)")
        if self.kind not in _FITTING.get(type(option), (self.kind,)):
            kinds = " and ".join(kind.__name__ for kind, name in _KINDS.items() if name in _FITTING[type(option)])
            raise DefinitionError(f"state {self.name!r}: {type(option).__name__} is for {kinds}; remove it here")

    def read(self) -> StateDeclaration:
        function, stored = self._function_and_type()
        default, ttl = self.options.get(Default), self.options.get(TTL)
        self._refuse_shared_default(default)
        codec = codec_for(stored)
        self._refuse_wrong_default(default, codec)
        return StateDeclaration(
            name=self.name,
            kind=self.kind,
            codec=codec,
            key_type=self._key_type() if self.kind == "map" else None,
            default=default,
            ttl=ttl,
            function=function,
            redistribute=self.options.get(Redistribute, Redistribute()),
            version=self.options.get(Version, Version(1)).number,
            queryable=self.options.get(Queryable, Queryable()).allowed,
        )

    def _key_type(self) -> Any:
        key_type = self._argument(0, str)
        codec_for(key_type)  # refuses what cannot be stored
        return key_type

    def _argument(self, index: int, missing: Any = Any) -> Any:
        return self.arguments[index] if index < len(self.arguments) else missing

    def _function_and_type(self) -> tuple[Any, Any]:
        if self.kind == "reducing":
            reduce = self.options.get(Reduce)
            if reduce is None:
                raise DefinitionError(
                    f"state {self.name!r}: a ReducingState needs its function; write for example "
                    f"Annotated[ReducingState[int], Reduce(max)]"
                )
            return reduce.function, self._argument(0)
        if self.kind == "aggregating":
            aggregate = self.options.get(Aggregate)
            if aggregate is None:
                raise DefinitionError(
                    f"state {self.name!r}: an AggregatingState needs its function; write for example "
                    f"Annotated[AggregatingState[float, float], Aggregate(Mean())]"
                )
            return aggregate.function, _accumulator_type(aggregate.function)
        if self.kind == "operator":
            return None, list[self._argument(0)]  # type: ignore[misc]
        return None, self._argument(1 if self.kind == "map" else 0)

    def _refuse_shared_default(self, default: Default | None) -> None:
        if default is not None and default.factory is None and isinstance(default.value, (list, dict, set)):
            raise DefinitionError(
                f"state {self.name!r}: a mutable default would be shared between keys; "
                f"use Default(factory={type(default.value).__name__})"
            )

    def _refuse_wrong_default(self, default: Default | None, codec: Codec[Any]) -> None:
        if self.kind not in ("value", "map") or default is None or default.value is None:
            return
        if not codec.check(default.value):
            raise DefinitionError(
                f"state {self.name!r} has values of type {type_name(codec.type)}: "
                f"{default.value!r} cannot be its default"
            )


_EXAMPLES: Final = {int: "0", float: "0.0", str: '""', bool: "False", bytes: 'b""'}


def _example(type_: Any) -> str:
    """A default to begin with."""
    cls = typing.get_origin(type_) or type_
    if cls in (list, dict, set):
        return f"Default(factory={cls.__name__})"
    return f"Default({_EXAMPLES.get(cls, '...')})"


def _accumulator_type(function: AggregateFunction[Any, Any, Any]) -> Any:
    for base in getattr(type(function), "__orig_bases__", ()):
        if typing.get_origin(base) is AggregateFunction:
            return typing.get_args(base)[1]
    return Any
