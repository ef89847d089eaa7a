"""What time it is: the system's clock, and one that tests move by hand."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from typing import Final, Protocol

from tidegate.errors import UsageError

__all__ = (
    "MAX_TIME",
    "MIN_TIME",
    "Clock",
    "Duration",
    "Instant",
    "ManualClock",
    "SystemClock",
    "to_duration",
    "to_instant",
)

MIN_TIME: Final = -(1 << 62)
"""Before all time: the watermark of a task that knows nothing yet."""
MAX_TIME: Final = 1 << 62
"""After all time: the watermark at the end of a bounded run."""

Instant = int | datetime
"""A point in time: milliseconds since 1970, or an aware datetime."""
Duration = float | timedelta
"""A span of time: seconds, or a timedelta."""


def to_instant(when: Instant) -> int:
    if isinstance(when, datetime):
        if when.tzinfo is None:
            raise UsageError(f"{when!r} has no time zone; use an aware datetime, or milliseconds since 1970")
        return round(when.timestamp() * 1000)
    instant = int(when)
    if not MIN_TIME <= instant <= MAX_TIME:
        raise UsageError(f"{instant} is beyond all time; times are milliseconds since 1970")
    return instant


def to_duration(span: Duration) -> int:
    """In milliseconds."""
    if isinstance(span, timedelta):
        return round(span.total_seconds() * 1000)
    return round(span * 1000)


class Clock(Protocol):
    def now(self) -> int:
        """Wall-clock time in ms since 1970; it may jump."""

    def monotonic(self) -> float:
        """Seconds that never go back; for intervals."""


class SystemClock:
    def now(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


class ManualClock:
    """Stands still until it is moved."""

    def __init__(self, now: Instant = 1_700_000_000_000) -> None:
        self._now = to_instant(now)
        self._monotonic = 0.0

    def now(self) -> int:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, span: Duration) -> None:
        self._now += to_duration(span)
        self._monotonic += to_duration(span) / 1000

    def jump(self, span: Duration) -> None:
        """Set the wall clock forward or back, as an operator or NTP may; intervals are not affected."""
        self._now += to_duration(span)
