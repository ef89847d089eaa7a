"""Validates the arguments of declarations: names, time sources, limits, fields."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeVar

from tidegate.codecs import may_have_field, type_name
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
    "key_function",
    "nearest",
    "snake",
)

T = TypeVar("T")

KeyBy = str | Callable[[T], Any]
"""The key of a value: the name of a field, or a function of the value."""


def check_name(kind: Literal["app", "topic", "service"], name: str) -> None:
    legal = name and all(letter.isalnum() or letter in "._-" for letter in name) and name.isascii()
    if not legal or len(name) > 200 or name in (".", ".."):
        article = "an" if kind == "app" else "a"
        raise DefinitionError(f"{name!r} cannot be the name of {article} {kind}: use letters, digits, '.', '_' and '-'")


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The most similar known name; None: none is similar."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1)), None)


def check_time(what: str, time: Any, watermark: Any) -> None:
    if not isinstance(time, TimeSource | None):
        raise DefinitionError(
            f"{what}: time={time!r} is not a time source; use "
            f"EventTime({time if isinstance(time, str) else '...'!r}), BrokerTime(), IngestionTime() or "
            f"ProcessingTime()"
        )
    if not isinstance(watermark, WatermarkStrategy | None):
        raise DefinitionError(
            f"{what}: watermark={watermark!r} is not a watermark strategy; use BoundedOutOfOrderness(by=...), "
            f"Monotonic() or Punctuated(mark=...)"
        )


def check_limits(topic: str, partitions: int | None, retention: Duration | None, retention_bytes: int | None) -> None:
    """A negative limit would remove records at once: for forever, Kafka has -1, Tidegate 0."""
    if partitions is not None and partitions < 1:
        raise DefinitionError(f"topic {topic!r}: partitions must be at least 1, not {partitions}")
    if retention is not None and to_duration(retention) < 0:
        raise DefinitionError(f"topic {topic!r}: retention must be at least 0, which keeps records forever")
    if retention_bytes is not None and retention_bytes < 1:
        raise DefinitionError(f"topic {topic!r}: retention_bytes must be at least 1; omit it for no limit")


def check_field(what: str, field: Any, type_: Any) -> None:
    """With a misspelt field, every record would fail."""
    if isinstance(field, str) and not may_have_field(type_, field):
        raise DefinitionError(f"{what} {field!r}, and {type_name(type_)} has no such field")


def snake(name: str) -> str:
    """The name in snake case: MatchMaker becomes match_maker."""
    return "".join(f"_{c.lower()}" if c.isupper() and i else c.lower() for i, c in enumerate(name)).replace("__", "_")


def key_function(key: KeyBy[Any] | None) -> Callable[[Any], Any] | None:
    """The function of `key`, or one that reads the field."""
    if key is None or callable(key):
        return key
    field = key
    return lambda value: value[field] if isinstance(value, dict) else getattr(value, field)
