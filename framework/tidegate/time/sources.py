"""Time sources: where a record's timestamp comes from. Chosen per app or per topic, without changes to handlers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tidegate.time.clock import MARCH_1973, MAX_TIME, Clock, Instant, means_seconds, to_instant

__all__ = ("BrokerTime", "EventTime", "Extract", "IngestionTime", "ProcessingTime", "TimeSource")

logger = logging.getLogger(__name__)

Extract = Callable[[Any, int], int]
"""From the decoded value and the record's own timestamp to a timestamp in ms. A tombstone has the value None, so it
keeps the record's own timestamp."""


class TimeSource:
    """The time of a record. Use EventTime, BrokerTime, IngestionTime or ProcessingTime."""

    append_time = False
    """Whether the log sets the timestamps of the topic's records."""

    def extractor(self, clock: Clock, *, outside: bool) -> Extract | None:
        """The function that a task calls for each record; None: the record's own timestamp. `outside`: the topic is
        not written by this app's services."""
        raise NotImplementedError


@dataclass(frozen=True)
class EventTime(TimeSource):
    """The time of the event: a field, or a function of the value; without either, the timestamp that the producer gave
    the record."""

    of: str | Callable[[Any], Any] | None = None

    def extractor(self, clock: Clock, *, outside: bool) -> Extract | None:
        of = self.of
        if of is None:
            return None
        convert = _Converter(clock, f"the field {of!r}" if isinstance(of, str) else "a topic's function").instant
        # The common case is inlined: this runs for every record.
        if isinstance(of, str):
            name = of

            def read(value: Any, timestamp: int) -> int:
                if value is None:
                    return timestamp
                when = value[name] if isinstance(value, dict) else getattr(value, name)
                return when if type(when) is int and MARCH_1973 <= when <= MAX_TIME else convert(when)
        else:
            function = of

            def read(value: Any, timestamp: int) -> int:
                if value is None:
                    return timestamp
                when = function(value)
                return when if type(when) is int and MARCH_1973 <= when <= MAX_TIME else convert(when)

        return read


class _Converter:
    """Converts uncommon event times, and warns once if they seem to be in seconds. They are used unchanged: times of
    synthetic data may start at 0."""

    def __init__(self, clock: Clock, source: str) -> None:
        self._clock, self._source, self._warned = clock, source, False

    def instant(self, when: Instant) -> int:
        instant = to_instant(when)
        if instant < MARCH_1973 and not self._warned and means_seconds(instant, self._clock.now()):
            self._warned = True
            logger.warning(
                "%s gives the event time %d, in January 1970. If these are seconds, multiply them: event times are "
                "milliseconds since 1970.",
                self._source,
                instant,
            )
        return instant


@dataclass(frozen=True)
class BrokerTime(TimeSource):
    """The time at which the log appended the record: the topic is created with log append time."""

    append_time = True

    def extractor(self, clock: Clock, *, outside: bool) -> Extract | None:
        return None


@dataclass(frozen=True)
class IngestionTime(TimeSource):
    """The time at which this app first read the record. Records that its services emit keep that time."""

    def extractor(self, clock: Clock, *, outside: bool) -> Extract | None:
        return (lambda value, timestamp: clock.now()) if outside else None


@dataclass(frozen=True)
class ProcessingTime(TimeSource):
    """The time at which a service processes the record, separately at each service."""

    def extractor(self, clock: Clock, *, outside: bool) -> Extract | None:
        return lambda value, timestamp: clock.now()
