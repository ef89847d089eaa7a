"""What the brokers' errors mean here, and how long to go on trying."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, NoReturn

from aiokafka import errors

from tidegate.errors import LogError, LogUnavailableError, TidegateError

__all__ = ("RetryBudget", "error_of", "is_passing", "translated")

_PASSING = (errors.ConcurrentTransactions,)
"""Over in a moment, though aiokafka does not count them among the retriable."""
_FORBIDDEN = (
    errors.TopicAuthorizationFailedError,
    errors.GroupAuthorizationFailedError,
    errors.ClusterAuthorizationFailedError,
    errors.TransactionalIdAuthorizationFailed,
)
_FORGOTTEN = (
    errors.OutOfOrderSequenceNumber,
    errors.UnknownProducerId,
    errors.InvalidTxnState,
    errors.InvalidProducerIdMapping,
)
"""The broker no longer knows what this writer did before: a new one begins afresh."""


_NEWER_CODES: Final = {
    -1: "UNKNOWN_SERVER_ERROR",  # what a broker says that is about to stop, too
    74: "FENCED_LEADER_EPOCH",
    75: "UNKNOWN_LEADER_EPOCH",
    78: "OFFSET_NOT_AVAILABLE",
    89: "THROTTLING_QUOTA_EXCEEDED",
    100: "UNKNOWN_TOPIC_ID",
    103: "INCONSISTENT_TOPIC_ID",
}


class PassingError(errors.KafkaError):  # type: ignore[misc]  # aiokafka has no types
    """One of the errors that pass, but that aiokafka does not know, or not as such."""

    retriable = True
    invalid_metadata = True


def error_of(code: int, about: object) -> errors.KafkaError | None:
    """The error of a response's code; None: there is none."""
    if code == 0:
        return None
    if code in _NEWER_CODES:
        return PassingError(f"{_NEWER_CODES[code]}, {about}")
    kind = errors.for_code(code)
    return kind(f"code {code}, {about}" if kind is errors.UnknownError else str(about))


def is_passing(error: errors.KafkaError) -> bool:
    """Whether to try the same again may help."""
    return bool(error.retriable) or isinstance(error, _PASSING)


def translated(error: errors.KafkaError, what: str) -> TidegateError:
    """An error for whoever uses the log."""
    if is_passing(error) or isinstance(error, errors.KafkaTimeoutError):
        return LogUnavailableError(f"{what}: the brokers do not answer as they should ({error})")
    if isinstance(error, _FORGOTTEN):
        return LogUnavailableError(f"{what}: the brokers no longer know this writer ({error}); a new one is needed")
    if isinstance(error, _FORBIDDEN):
        return LogError(f"{what}: the brokers do not allow it to this user ({error}). Check the ACLs.")
    return LogError(f"{what}: {error}")


class RetryBudget:
    """Tries again after a wait that grows, until its time is over."""

    def __init__(self, seconds: float, what: str, *, first: float = 0.002, longest: float = 0.25) -> None:
        self._what, self._wait, self._longest = what, first, longest
        self._seconds = seconds
        self.deadline = asyncio.get_running_loop().time() + seconds

    async def bear(self, error: errors.KafkaError) -> None:
        """Wait if the error may pass; else, or if it has been too long already, raise what it means."""
        if not is_passing(error):
            raise translated(error, self._what) from error
        if asyncio.get_running_loop().time() + self._wait >= self.deadline:
            self.give_up(error)
        await asyncio.sleep(self._wait)
        self._wait = min(self._wait * 2, self._longest)

    @asynccontextmanager
    async def limited(self) -> AsyncIterator[None]:
        """Let nothing in here take longer."""
        limit = asyncio.timeout_at(self.deadline)
        try:
            async with limit:
                yield
        except TimeoutError as error:
            if not limit.expired():
                raise
            self.give_up(error)

    def give_up(self, error: BaseException) -> NoReturn:
        reason = str(error) or type(error).__name__  # aiokafka's errors begin with their names
        raise LogUnavailableError(f"{self._what}: no success within {self._seconds:g} s ({reason})") from error
