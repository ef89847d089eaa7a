"""Error messages for unknown options and attributes of an App, with a suggestion."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Final, ParamSpec

from tidegate.errors import DefinitionError
from tidegate.functions.declaration.validation import nearest

__all__ = ("missing_attribute", "refuse_unknown_options")

P = ParamSpec("P")

_TOPIC_METHODS: Final = frozenset({"send", "send_many"})
_FAUST_ATTRIBUTES: Final = frozenset(
    {
        "GlobalTable",
        "SetTable",
        "Table",
        "channel",
        "conf",
        "config_from_object",
        "main",
        "page",
        "service",
        "stream",
        "table_route",
        "web",
    }
)


def refuse_unknown_options(init: Callable[P, None]) -> Callable[P, None]:
    """Decorates `App.__init__`: an unknown option raises a DefinitionError with the nearest known one. Type checkers
    see the original parameters."""
    known = inspect.signature(init).parameters

    @functools.wraps(init)
    def checked(*arguments: P.args, **options: P.kwargs) -> None:
        for name in options:
            if name not in known:
                raise DefinitionError(_unknown_option(arguments[1:], name, known))
        init(*arguments, **options)

    return checked


def _unknown_option(arguments: tuple[object, ...], name: str, known: Iterable[str]) -> str:
    from tidegate.faust_host.config import FAUST_OPTIONS

    problem = f"App({', '.join(map(repr, arguments))}, ...) has no option {name!r}"
    if name in FAUST_OPTIONS:
        return f"{problem}: it is an option of Faust, so write App(..., faust={{{name!r}: ...}})"
    near = nearest(name, known)
    return f"{problem}; 'tidegate config' lists them" if near is None else f"{problem}; did you mean {near!r}?"


def missing_attribute(name: str) -> str:
    problem = f"an App has no attribute {name!r}"
    if name in _TOPIC_METHODS:
        return f"{problem}: write topic.{name}(...)"
    return f"{problem}: write app.faust.{name}" if name in _FAUST_ATTRIBUTES else problem
