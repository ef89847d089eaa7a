"""Type variables with defaults, so that a bare `Context` is a `Context[Any]`: older Pythons than 3.13 have none.

Type checkers see those of typing_extensions, of which nothing is imported when a program runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import TypeVar
else:
    import typing

    def TypeVar(name: str, *, default: Any, **options: Any) -> Any:  # noqa: N802
        return typing.TypeVar(name, **options)


__all__ = ("TypeVar",)
