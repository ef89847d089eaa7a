"""Where a record's time comes from. Chosen per app or per topic; handlers never know."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tidegate.logs.base import LogRecord
from tidegate.time.clock import Clock, to_instant

__all__ = ("BrokerTime", "EventTime", "Extract", "IngestionTime", "ProcessingTime", "TimeSource")

Extract = Callable[[Any, LogRecord], int]
"""From the decoded value and its record to a timestamp in ms."""


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
        if isinstance(of, str):
            name = of
            return lambda value, _: to_instant(value[name] if isinstance(value, dict) else getattr(value, name))
        function = of
        return lambda value, _: to_instant(function(value))


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
        return (lambda _value, _record: clock.now()) if outside else None


@dataclass(frozen=True)
class ProcessingTime(TimeSource):
    """When it is handled, at each service anew."""

    def extractor(self, clock: Clock, *, outside: bool) -> Extract | None:
        return lambda _value, _record: clock.now()
