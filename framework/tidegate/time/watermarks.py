"""Watermark strategies and generators.

A watermark w of a channel means: no record with a timestamp of w or less is expected any more. A record that arrives
with such a timestamp is late.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from tidegate.errors import DefinitionError
from tidegate.time.clock import MIN_TIME, Duration, to_duration

__all__ = ("BoundedOutOfOrderness", "Monotonic", "Punctuated", "WatermarkGenerator", "WatermarkStrategy")


class WatermarkGenerator(ABC):
    """Computes the watermark of one input partition."""

    @abstractmethod
    def observe(self, timestamp: int, value: Any) -> int:
        """The channel's watermark after this record; a lower one than before is ignored."""


@dataclass(frozen=True, kw_only=True)
class WatermarkStrategy(ABC):
    """Creates generators. Derive from it for your own strategy."""

    idle_after: Duration | None = timedelta(minutes=1)
    """A partition that is read to its end, and has no new records for this time, is idle: it no longer holds back the
    watermark. None: never."""

    def __post_init__(self) -> None:
        if self.idle_after is not None and to_duration(self.idle_after) < 0:
            raise DefinitionError(f"idle_after must be at least 0, or None for never, not {self.idle_after}")

    @abstractmethod
    def generator(self) -> WatermarkGenerator: ...

    @property
    def bound(self) -> int | None:
        """In ms, if the watermark is the highest timestamp minus a bound: the hot loop then needs no generator."""
        return None


class _Bounded(WatermarkGenerator):
    def __init__(self, bound: int) -> None:
        self._bound, self._highest = bound, MIN_TIME

    def observe(self, timestamp: int, value: Any) -> int:
        self._highest = max(self._highest, timestamp)
        return self._highest - self._bound - 1


@dataclass(frozen=True, kw_only=True)
class BoundedOutOfOrderness(WatermarkStrategy):
    """Records are out of order by at most `by` (seconds or a timedelta)."""

    by: Duration = 5.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if to_duration(self.by) < 0:
            raise DefinitionError(
                f"BoundedOutOfOrderness(by=...) must be at least 0, not {self.by}: a watermark cannot be ahead of the "
                f"records"
            )

    def generator(self) -> WatermarkGenerator:
        return _Bounded(to_duration(self.by))

    @property
    def bound(self) -> int | None:
        return to_duration(self.by)


@dataclass(frozen=True, kw_only=True)
class Monotonic(WatermarkStrategy):
    """Records are in order within a partition."""

    def generator(self) -> WatermarkGenerator:
        return _Bounded(0)

    @property
    def bound(self) -> int | None:
        return 0


class _Punctuated(WatermarkGenerator):
    def __init__(self, mark: Callable[[Any, int], int | None]) -> None:
        self._mark, self._watermark = mark, MIN_TIME

    def observe(self, timestamp: int, value: Any) -> int:
        mark = None if value is None else self._mark(value, timestamp)  # a tombstone says nothing of time
        if mark is not None:
            self._watermark = max(self._watermark, mark)
        return self._watermark


@dataclass(frozen=True, kw_only=True)
class Punctuated(WatermarkStrategy):
    """Some records carry a watermark: `mark(value, timestamp)` returns it, or None."""

    mark: Callable[[Any, int], int | None]

    def generator(self) -> WatermarkGenerator:
        return _Punctuated(self.mark)
