"""What time it is: the system's clock, and one that tests move by hand."""

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
"""Before all time: the watermark of a task that knows nothing yet."""
MAX_TIME: Final = 1 << 62
"""After all time: the watermark at the end of a bounded run."""

Instant = int | datetime
"""A point in time: milliseconds since 1970, or an aware datetime."""
Duration = float | timedelta
"""A span of time: seconds, or a timedelta."""


MARCH_1973: Final = 100_000_000_000
"""In milliseconds. A thousandth of it is the same day in seconds: a number between the two is before that day as
milliseconds, and after it as seconds."""
_NEAR: Final = 10 * 365 * 86_400_000
"""Ten years."""
_SECONDS: Final = (
    "{} looks like a time in seconds; times are milliseconds since 1970, such as int(time.time() * 1000), or aware "
    "datetimes"
)


def to_instant(when: Instant, *, now: int | None = None) -> int:
    """In milliseconds. `now`: about when it is, where that is known, so that whole seconds can be told from times."""
    if isinstance(when, datetime):
        if when.tzinfo is None:
            raise UsageError(f"{when!r} has no time zone; use an aware datetime, or milliseconds since 1970")
        return round(when.timestamp() * 1000)
    # Arithmetic makes floats of milliseconds too, but not of these years: time.time() does.
    if isinstance(when, float) and MARCH_1973 // 1000 <= when < MARCH_1973:
        raise UsageError(_SECONDS.format(when))
    instant = int(when) if not isinstance(when, float) or isfinite(when) else MAX_TIME + 1
    if not MIN_TIME <= instant <= MAX_TIME:
        raise UsageError(f"{when} is beyond all time; times are milliseconds since 1970")
    if now is not None and means_seconds(instant, now):
        raise UsageError(_SECONDS.format(when))
    return instant


def means_seconds(instant: int, now: int) -> bool:
    """Whether a number that is given as a time must be one in seconds: as such it is near `now`, while as milliseconds
    it is in the first weeks of 1970. Where `now` itself is before 1973, as in tests whose time begins at 0, none is."""
    return instant < MARCH_1973 <= now and abs(instant * 1000 - now) < _NEAR


def to_duration(span: Duration) -> int:
    """In milliseconds."""
    if isinstance(span, timedelta):
        return round(span.total_seconds() * 1000)
    given: object = span
    if not isinstance(given, int | float) or not isfinite(given):
        raise UsageError(f"a span of time is seconds or a timedelta, not {given!r}")
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
