"""Error policies: what a service does with a record whose handler fails, or that cannot be decoded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tidegate.errors import DefinitionError
from tidegate.time.clock import Duration, to_duration

__all__ = ("DEAD_LETTER", "SKIP", "STOP", "DeadLetter", "ErrorPolicy", "Retry", "Skip", "Stop", "retry")


class ErrorPolicy:
    """Use STOP, SKIP, DEAD_LETTER or retry(...)."""


@dataclass(frozen=True)
class Stop(ErrorPolicy):
    """The worker stops with the error. The record has no committed effects, and is read again at the next start."""


@dataclass(frozen=True)
class Skip(ErrorPolicy):
    """The record counts as handled, without any effect. It is logged and counted."""


@dataclass(frozen=True)
class DeadLetter(ErrorPolicy):
    """The record goes to `{app}.{service}.dead-letters` with the error and its origin, in the same transaction."""


@dataclass(frozen=True, kw_only=True)
class Retry(ErrorPolicy):
    """The handler runs again after a delay. Its key waits, and other keys proceed."""

    times: int
    backoff_ms: int
    factor: float
    most_ms: int
    then: ErrorPolicy

    def delay(self, attempt: int) -> float:
        """Seconds to wait before the given retry; the first is 1."""
        try:
            return min(self.backoff_ms * self.factor ** (attempt - 1), self.most_ms) / 1000
        except OverflowError:
            return self.most_ms / 1000


STOP: Final = Stop()
SKIP: Final = Skip()
DEAD_LETTER: Final = DeadLetter()


def retry(
    times: int,
    backoff: Duration = 0.1,
    *,
    factor: float = 2.0,
    most: Duration = 30.0,
    then: ErrorPolicy = STOP,
) -> Retry:
    """Retry up to `times` times. The delay is `backoff` before the first retry, and is multiplied by `factor` before
    each further one, up to `most`. If all retries fail, the policy `then` applies."""
    backoff_ms, most_ms = to_duration(backoff), to_duration(most)
    if times < 1 or factor < 1 or min(backoff_ms, most_ms) < 0 or not isinstance(then, Stop | Skip | DeadLetter):
        raise DefinitionError(
            "retry(times, ...): times and factor are at least 1, backoff and most at least 0, "
            "and then= is STOP, SKIP or DEAD_LETTER"
        )
    return Retry(times=times, backoff_ms=backoff_ms, factor=factor, most_ms=most_ms, then=then)
