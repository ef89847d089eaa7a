"""Error policies: what happens to a record that cannot be decoded or whose handler fails. Each service has one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tidegate.errors import DefinitionError
from tidegate.time.clock import Duration, to_duration

__all__ = ("DEAD_LETTER", "SKIP", "STOP", "DeadLetter", "ErrorPolicy", "Retry", "Skip", "Stop", "retry")


class ErrorPolicy:
    """What happens to a record that fails: STOP, SKIP, DEAD_LETTER or retry(...)."""


@dataclass(frozen=True)
class Stop(ErrorPolicy):
    """The worker stops with the error. The record has no effect, and is processed again after the next start."""


@dataclass(frozen=True)
class Skip(ErrorPolicy):
    """The record is skipped: it has no effect, and is logged and counted."""


@dataclass(frozen=True)
class DeadLetter(ErrorPolicy):
    """The record is written to `{app}.{service}.dead-letters` with its error and origin, in the same transaction."""


@dataclass(frozen=True, kw_only=True)
class Retry(ErrorPolicy):
    """The handler is called again after a delay. Records of the same key wait; other keys continue."""

    times: int
    backoff_ms: int
    factor: float
    most_ms: int
    then: ErrorPolicy

    def delay(self, attempt: int) -> float:
        """The delay before this retry in seconds; the first retry is 1."""
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
    """An error policy with retries and exponential backoff.

    times: the number of retries. backoff: the delay before the first one. factor: each delay is this much longer than
    the one before. most: the longest delay. then: the policy after the last retry: STOP, SKIP or DEAD_LETTER."""
    backoff_ms, most_ms = to_duration(backoff), to_duration(most)
    if times < 1 or factor < 1 or min(backoff_ms, most_ms) < 0 or not isinstance(then, Stop | Skip | DeadLetter):
        raise DefinitionError(
            "retry(times, ...): times and factor are at least 1, backoff and most at least 0, "
            "and then= is STOP, SKIP or DEAD_LETTER"
        )
    return Retry(times=times, backoff_ms=backoff_ms, factor=factor, most_ms=most_ms, then=then)
