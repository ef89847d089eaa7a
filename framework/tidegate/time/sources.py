"""Where a record's time comes from. Chosen per app or per topic; handlers never know."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tidegate.time.clock import MARCH_1973, MAX_TIME, Clock, Instant, means_seconds, to_instant

__all__ = ("BrokerTime", "EventTime", "Extract", "IngestionTime", "ProcessingTime", "TimeSource")

logger = logging.getLogger(__name__)

Extract = Callable[[Any, int], int]
"""From the decoded value, and the record's own timestamp, to a timestamp in ms. A tombstone, whose value is None, has
no time in its value: it keeps the record's own."""


class TimeSource:
    """The time of a record. Use EventTime, BrokerTime, IngestionTime or ProcessingTime."""

    append_time = False
    """Whether the log must stamp the topic's records itself."""

    def extractor(self, clock: Clock, *, outside: bool) -> Extract | None:
        """How a task gets at the time; None: the record's own timestamp. `outside`: sent by nobody of this app."""
        raise NotImplementedError


@dataclass(frozen=True)
class EventTime(TimeSource):
    """When it happened, as the event itself says: a field, a function of the value, or (without either) the
    timestamp that its sender gave the record."""

    of: str | Callable[[Any], Any] | None = None

    def extractor(self, clock: Clock, *, outside: bool) -> Extract | None:
        of = self.of
        if of is None:
            return None
        doubtful = _Doubt(clock, f"the field {of!r}" if isinstance(of, str) else "a topic's function").instant
        # The usual case is written out: this is done for every record.
        if isinstance(of, str):
            name = of

            def read(value: Any, timestamp: int) -> int:
                if value is None:
                    return timestamp
                when = value[name] if isinstance(value, dict) else getattr(value, name)
                return when if type(when) is int and MARCH_1973 <= when <= MAX_TIME else doubtful(when)
        else:
            function = of

            def read(value: Any, timestamp: int) -> int:
                if value is None:
                    return timestamp
                when = function(value)
                return when if type(when) is int and MARCH_1973 <= when <= MAX_TIME else doubtful(when)

        return read


class _Doubt:
    """Says once that event times seem to be in seconds. They are taken as they are: the times of an invented history
    that begins at 0 may pass there too."""

    def __init__(self, clock: Clock, source: str) -> None:
        self._clock, self._source, self._said = clock, source, False

    def instant(self, when: Instant) -> int:
        instant = to_instant(when)
        if instant < MARCH_1973 and not self._said and means_seconds(instant, self._clock.now()):
            self._said = True
            logger.warning(
                "%s gives the event time %d, in January 1970. If these are seconds, multiply them: event times are "
                "milliseconds since 1970.",
                self._source,
                instant,
            )
        return instant


@dataclass(frozen=True)
class BrokerTime(TimeSource):
    """When the log appended it: the topic is created so that the log stamps its records."""

    append_time = True

    def extractor(self, clock: Clock, *, outside: bool) -> Extract | None:
        return None


@dataclass(frozen=True)
class IngestionTime(TimeSource):
    """When this app first read it. What its services send on keeps that time."""

    def extractor(self, clock: Clock, *, outside: bool) -> Extract | None:
        return (lambda value, timestamp: clock.now()) if outside else None


@dataclass(frozen=True)
class ProcessingTime(TimeSource):
    """When it is handled, at each service anew."""

    def extractor(self, clock: Clock, *, outside: bool) -> Extract | None:
        return lambda value, timestamp: clock.now()
