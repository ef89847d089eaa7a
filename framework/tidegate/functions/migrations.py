"""Migrations: functions that convert the values of a state from one version to the next."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from tidegate.codecs import Codec, codec_for
from tidegate.errors import DefinitionError

__all__ = ("Migration", "declared_migrations", "migration", "read_migration")

F = TypeVar("F", bound=Callable[[Any], Any])
_MARK: Final = "__tidegate_migration__"


def migration(state: str, *, from_version: int) -> Callable[[F], F]:
    """Decorates a static method of a ProcessFunction that converts values of a state to the next version.

    state: the name of the state. from_version: the version of the old values.

    @staticmethod
    @migration("pair", from_version=1)
    def with_a_time(old: PairV1) -> Pair: ...
    """

    def mark(function: F) -> F:
        setattr(function, _MARK, (state, from_version))
        return function

    return mark


def declared_migrations(cls: type) -> Iterator[tuple[str, int, Callable[[Any], Any]]]:
    """The migrations of a class, including inherited ones that it does not override."""
    attributes = {name: value for base in reversed(cls.__mro__) for name, value in vars(base).items()}
    for attribute in attributes.values():
        function = attribute.__func__ if isinstance(attribute, staticmethod) else attribute
        mark = getattr(function, _MARK, None)
        if mark is None:
            continue
        if function is attribute:
            raise DefinitionError(f"{cls.__qualname__}.{function.__name__} must be a @staticmethod: it has no self")
        yield (*mark, function)


@dataclass(frozen=True)
class Migration:
    state: str
    from_version: int
    function: Callable[[Any], Any]
    old_type: Any
    """The annotated type of the function's parameter; Any: values decoded from plain JSON."""

    def codec(self, kind: str) -> Codec[Any]:
        return codec_for(list[self.old_type] if kind == "operator" else self.old_type)  # type: ignore[name-defined]


def read_migration(
    state: str, from_version: int, function: Callable[[Any], Any], names: Mapping[str, Any]
) -> Migration:
    """Reads the signature of a migration."""
    label = getattr(function, "__qualname__", repr(function))
    if not inspect.isfunction(function) or inspect.iscoroutinefunction(function):
        raise DefinitionError(f"{label}: a migration is a plain function from an old value to a new one, not async")
    parameters = list(inspect.signature(function).parameters.values())
    if len(parameters) != 1:
        raise DefinitionError(f"{label}: a migration takes one parameter, the old value: def {label}(old: OldType)")
    try:
        hints = typing.get_type_hints(function, localns=dict(names), include_extras=True)
    except (NameError, TypeError) as error:
        raise DefinitionError(f"{label}: an annotation cannot be resolved: {error}") from error
    old_type = hints.get(parameters[0].name, Any)
    codec_for(old_type)  # refuses what cannot be stored
    return Migration(state, from_version, function, old_type)
