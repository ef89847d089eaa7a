"""Clocks: the system's, and a manual one for tests; instants and durations."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from math import isfinite
from typing import Final, Protocol

from tidegate.errors import UsageError

__all__ = (
    "MARCH_1973",
    "MAX_TIME",
    "MIN_TIME",
    "Clock",
    "Duration",
    "Instant",
    "ManualClock",
    "SystemClock",
    "means_seconds",
    "to_duration",
    "to_instant",
)

MIN_TIME: Final = -(1 << 62)
"""The initial watermark of a task."""
MAX_TIME: Final = 1 << 62
"""The end of time: the watermark at the end of a bounded run."""

Instant = int | datetime
"""A point in time: milliseconds since 1970, or an aware datetime."""
Duration = float | timedelta
"""A span of time: seconds, or a timedelta."""


MARCH_1973: Final = 100_000_000_000
"""In milliseconds. A number between this and a thousandth of it is before March 1973 as milliseconds, and after it as
seconds."""
_NEAR: Final = 10 * 365 * 86_400_000
"""Ten years."""
_SECONDS: Final = (
    "{} looks like a time in seconds; times are milliseconds since 1970, such as int(time.time() * 1000), or aware "
    "datetimes"
)


def to_instant(when: Instant, *, now: int | None = None) -> int:
    """To milliseconds since 1970. `now`: the current time, if known, to detect times in whole seconds."""
    if isinstance(when, datetime):
        if when.tzinfo is None:
            raise UsageError(f"{when!r} has no time zone; use an aware datetime, or milliseconds since 1970")
        return round(when.timestamp() * 1000)
    # Arithmetic with milliseconds may give a float, but not one before 1973: that is a time.time().
    if isinstance(when, float) and MARCH_1973 // 1000 <= when < MARCH_1973:
        raise UsageError(_SECONDS.format(when))
    instant = int(when) if not isinstance(when, float) or isfinite(when) else MAX_TIME + 1
    if not MIN_TIME <= instant <= MAX_TIME:
        raise UsageError(f"{when} is out of range; times are milliseconds since 1970")
    if now is not None and means_seconds(instant, now):
        raise UsageError(_SECONDS.format(when))
    return instant


def means_seconds(instant: int, now: int) -> bool:
    """Whether a time is probably in seconds: as seconds it is near `now`, as milliseconds in the first weeks of 1970.
    Never if `now` itself is before 1973, as in tests whose time starts at 0."""
    return instant < MARCH_1973 <= now and abs(instant * 1000 - now) < _NEAR


def to_duration(span: Duration) -> int:
    """To milliseconds."""
    if isinstance(span, timedelta):
        return round(span.total_seconds() * 1000)
    given: object = span
    if not isinstance(given, int | float) or not isfinite(given):
        raise UsageError(f"a duration is a number of seconds or a timedelta, not {given!r}")
    return round(span * 1000)


class Clock(Protocol):
    def now(self) -> int:
        """Wall-clock time in ms since 1970; it may jump."""

    def monotonic(self) -> float:
        """Seconds that never go back, for intervals."""


class SystemClock:
    def now(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


class ManualClock:
    """Advances only when a test moves it."""

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
