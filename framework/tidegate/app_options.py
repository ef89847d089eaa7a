"""Errors for options and attributes that an App does not have, with what to write instead."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Final, ParamSpec

from tidegate.errors import DefinitionError
from tidegate.functions.declaration.validation import nearest

__all__ = ("missing_attribute", "refuse_unknown_options")

P = ParamSpec("P")

_OF_TOPICS: Final = frozenset({"send", "send_many"})
_OF_FAUST: Final = frozenset(
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
    """Refuse unknown options of `App(...)`, and name the most similar one. Type checkers see the typed parameters."""
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

    what = f"App({', '.join(map(repr, arguments))}, ...) has no option {name!r}"
    if name in FAUST_OPTIONS:
        return f"{what}: it is one of Faust's, App(..., faust={{{name!r}: ...}})"
    near = nearest(name, known)
    return f"{what}; 'tidegate config' shows them" if near is None else f"{what}; did you mean {near!r}?"


def missing_attribute(name: str) -> str:
    what = f"an App has no attribute {name!r}"
    if name in _OF_TOPICS:
        return f"{what}: write topic.{name}(...)"
    return f"{what}: write app.faust.{name}" if name in _OF_FAUST else what
