"""Type variables with defaults, so that a bare `Context` is a `Context[Any]`. Python before 3.13 has none.

Type checkers see those of typing_extensions, which is not imported at run time.
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
