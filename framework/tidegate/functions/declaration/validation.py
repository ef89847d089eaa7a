"""Checks of declarations, when they are made: names, sources of time, limits, fields."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeVar

from tidegate.codecs import may_have, type_name
from tidegate.errors import DefinitionError
from tidegate.time.clock import Duration, to_duration
from tidegate.time.sources import TimeSource
from tidegate.time.watermarks import WatermarkStrategy

__all__ = (
    "KeyBy",
    "check_field",
    "check_limits",
    "check_name",
    "check_time",
    "getter",
    "nearest",
    "snake",
)

T = TypeVar("T")

KeyBy = str | Callable[[T], Any]
"""The source of a value's key: the name of a field, or a function of the value."""


def check_name(kind: Literal["app", "topic", "service"], name: str) -> None:
    legal = name and all(letter.isalnum() or letter in "._-" for letter in name) and name.isascii()
    if not legal or len(name) > 200 or name in (".", ".."):
        article = "an" if kind == "app" else "a"
        raise DefinitionError(f"{name!r} cannot be the name of {article} {kind}: use letters, digits, '.', '_' and '-'")


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The most similar known name."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1)), None)


def check_time(what: str, time: Any, watermark: Any) -> None:
    if not isinstance(time, TimeSource | None):
        raise DefinitionError(
            f"{what}: time={time!r} is no source of time; use EventTime({time if isinstance(time, str) else '...'!r}), "
            f"BrokerTime(), IngestionTime() or ProcessingTime()"
        )
    if not isinstance(watermark, WatermarkStrategy | None):
        raise DefinitionError(
            f"{what}: watermark={watermark!r} is no strategy; use BoundedOutOfOrderness(by=...), Monotonic() or "
            f"Punctuated(mark=...)"
        )


def check_limits(topic: str, partitions: int | None, retention: Duration | None, retention_bytes: int | None) -> None:
    """Refuse negative limits, which would remove records at once. Kafka's -1, for ever, is 0 here, as for settings."""
    if partitions is not None and partitions < 1:
        raise DefinitionError(f"topic {topic!r}: partitions must be at least 1, not {partitions}")
    if retention is not None and to_duration(retention) < 0:
        raise DefinitionError(f"topic {topic!r}: retention must be at least 0, which keeps records for ever")
    if retention_bytes is not None and retention_bytes < 1:
        raise DefinitionError(f"topic {topic!r}: retention_bytes must be at least 1; leave it out for no limit")


def check_field(what: str, field: Any, type_: Any) -> None:
    """Refuse a misspelt field, which would fail for every record."""
    if isinstance(field, str) and not may_have(type_, field):
        raise DefinitionError(f"{what} {field!r}, and {type_name(type_)} has no such field")


def snake(name: str) -> str:
    """matchmaker stays; MatchMaker becomes match_maker."""
    return "".join(f"_{c.lower()}" if c.isupper() and i else c.lower() for i, c in enumerate(name)).replace("__", "_")


def getter(key: KeyBy[Any] | None) -> Callable[[Any], Any] | None:
    if key is None or callable(key):
        return key
    field = key
    return lambda value: value[field] if isinstance(value, dict) else getattr(value, field)
