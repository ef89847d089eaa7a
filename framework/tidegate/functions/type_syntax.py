"""What type checkers know of types, and the standard library of Python 3.11 does not.

Nothing of typing_extensions is imported when a program runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import UnionType
    from typing import _SpecialForm

    from typing_extensions import TypeVar

    TypeForm = UnionType | _SpecialForm | type[Any]
else:
    import typing

    TypeForm = Any

    def TypeVar(name: str, *, default: Any, **options: Any) -> Any:  # noqa: N802
        return typing.TypeVar(name, **options)


__all__ = ("TypeForm", "TypeVar")
# A TypeVar here may have a default, so that a bare `Context` is a `Context[Any]`.
# A TypeForm is whatever stands for a type, as a union, a Literal or an Annotated that are no classes. It contains classes, too:
# to mypy, `A | B` of classes with a metaclass is also a class.
