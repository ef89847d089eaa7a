"""Durations and types as the commands' tables show them."""

from __future__ import annotations

from typing import Any

__all__ = ("span", "type_name")


def span(milliseconds: int) -> str:
    for unit, name in ((86_400_000, "days"), (3_600_000, "hours"), (60_000, "minutes"), (1000, "seconds")):
        if milliseconds >= unit:
            return f"{milliseconds / unit:g} {name.removesuffix('s') if milliseconds == unit else name}"
    return f"{milliseconds} ms"


def type_name(type_: Any) -> str:
    if type_ is Any:
        return "any"
    return str(getattr(type_, "__name__", "") if isinstance(type_, type) else "") or repr(type_).replace("typing.", "")
