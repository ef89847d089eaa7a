"""Helpers of the services: validation of options, and access to fields of events."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from tidegate import TTL

__all__ = ("Field", "Span", "getter", "seconds_of", "ttl_of")

Span = float | timedelta
"""Seconds, or a timedelta."""
Field = str | Callable[[Any], Any]
"""The name of an event's field, or a function of the event."""


def seconds_of(span: Span, what: str) -> float:
    """The span in seconds. ValueError: it is not positive."""
    seconds = span.total_seconds() if isinstance(span, timedelta) else float(span)
    if not seconds > 0:
        raise ValueError(f"{what} must be more than 0, not {seconds:g} s")
    return seconds


def ttl_of(seconds: float) -> TTL:
    return TTL(milliseconds=max(1, round(seconds * 1000)))


def getter(field: Field) -> Callable[[Any], Any]:
    if callable(field):
        return field
    name = field
    return lambda event: event[name] if isinstance(event, dict) else getattr(event, name)
