"""Watermarks: how sure a channel is that no earlier record will come.

A watermark w says: no record with a timestamp of w or less is expected any more. One that comes all the same is late.
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
    """Follows one channel. Made anew for each input partition."""

    @abstractmethod
    def observe(self, timestamp: int, value: Any) -> int:
        """The channel's watermark after this record; a lower one than before is ignored."""


@dataclass(frozen=True, kw_only=True)
class WatermarkStrategy(ABC):
    """Makes generators. Derive from it for a strategy of your own."""

    idle_after: Duration | None = timedelta(minutes=1)
    """A partition without records for so long, when everything in it is read, no longer holds time back; None:
    never."""

    def __post_init__(self) -> None:
        if self.idle_after is not None and to_duration(self.idle_after) < 0:
            raise DefinitionError(f"idle_after is at least 0, or None for never, not {self.idle_after}")

    @abstractmethod
    def generator(self) -> WatermarkGenerator: ...

    @property
    def bound(self) -> int | None:
        """In ms, when the watermark is simply the highest timestamp less a bound: the hot loop then asks nobody."""
        return None


class _Bounded(WatermarkGenerator):
    def __init__(self, bound: int) -> None:
        self._bound, self._highest = bound, MIN_TIME

    def observe(self, timestamp: int, value: Any) -> int:
        self._highest = max(self._highest, timestamp)
        return self._highest - self._bound - 1


@dataclass(frozen=True, kw_only=True)
class BoundedOutOfOrderness(WatermarkStrategy):
    """Records come out of order by at most `by` (seconds or a timedelta)."""

    by: Duration = 5.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if to_duration(self.by) < 0:
            raise DefinitionError(f"BoundedOutOfOrderness(by=...) is at least 0, not {self.by}: time cannot run ahead")

    def generator(self) -> WatermarkGenerator:
        return _Bounded(to_duration(self.by))

    @property
    def bound(self) -> int | None:
        return to_duration(self.by)


@dataclass(frozen=True, kw_only=True)
class Monotonic(WatermarkStrategy):
    """Records come in order within a partition."""

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
    """Some records say how far time has come: `mark(value, timestamp)` returns a watermark, or None."""

    mark: Callable[[Any, int], int | None]

    def generator(self) -> WatermarkGenerator:
        return _Punctuated(self.mark)
