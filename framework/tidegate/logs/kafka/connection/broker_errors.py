"""Error codes of brokers: which are retriable, their translation to TidegateErrors, and the budget of retries."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, NoReturn

from aiokafka import errors

from tidegate.errors import LogError, LogUnavailableError, TidegateError

__all__ = ("RetryBudget", "error_of", "is_retriable", "to_log_error")

_RETRIABLE = (errors.ConcurrentTransactions,)
"""Retriable, though aiokafka does not mark them so."""
_FORBIDDEN = (
    errors.TopicAuthorizationFailedError,
    errors.GroupAuthorizationFailedError,
    errors.ClusterAuthorizationFailedError,
    errors.TransactionalIdAuthorizationFailed,
)
_PRODUCER_STATE_LOST = (
    errors.OutOfOrderSequenceNumber,
    errors.UnknownProducerId,
    errors.InvalidTxnState,
    errors.InvalidProducerIdMapping,
)
"""The broker has lost the state of this writer: a new writer is needed."""


_NEWER_CODES: Final = {
    -1: "UNKNOWN_SERVER_ERROR",  # also sent by a broker that is shutting down
    74: "FENCED_LEADER_EPOCH",
    75: "UNKNOWN_LEADER_EPOCH",
    78: "OFFSET_NOT_AVAILABLE",
    89: "THROTTLING_QUOTA_EXCEEDED",
    100: "UNKNOWN_TOPIC_ID",
    103: "INCONSISTENT_TOPIC_ID",
}


class RetriableError(errors.KafkaError):  # type: ignore[misc]  # aiokafka has no types
    """A retriable error that aiokafka does not know, or does not mark as retriable."""

    retriable = True
    invalid_metadata = True


def error_of(code: int, about: object) -> errors.KafkaError | None:
    """The error of a response's code; None: there is none."""
    if code == 0:
        return None
    if code in _NEWER_CODES:
        return RetriableError(f"{_NEWER_CODES[code]}, {about}")
    kind = errors.for_code(code)
    return kind(f"code {code}, {about}" if kind is errors.UnknownError else str(about))


def is_retriable(error: errors.KafkaError) -> bool:
    """Whether the same request may succeed later."""
    return bool(error.retriable) or isinstance(error, _RETRIABLE)


def to_log_error(error: errors.KafkaError, what: str) -> TidegateError:
    """The error that the log's caller gets. `what`: the failed operation."""
    if is_retriable(error) or isinstance(error, errors.KafkaTimeoutError):
        return LogUnavailableError(f"{what}: the brokers are unavailable ({error})")
    if isinstance(error, _PRODUCER_STATE_LOST):
        return LogUnavailableError(f"{what}: the brokers have lost the state of this producer ({error})")
    if isinstance(error, _FORBIDDEN):
        return LogError(f"{what}: the brokers do not authorize this user ({error}). Check the ACLs.")
    return LogError(f"{what}: {error}")


class RetryBudget:
    """Retries with an exponential backoff until a deadline."""

    def __init__(self, seconds: float, what: str, *, first: float = 0.002, longest: float = 0.25) -> None:
        self._what, self._wait, self._longest = what, first, longest
        self._seconds = seconds
        self.deadline = asyncio.get_running_loop().time() + seconds

    async def wait_or_raise(self, error: errors.KafkaError) -> None:
        """Waits before the next attempt. Raises a permanent error, and any error after the deadline."""
        if not is_retriable(error):
            raise to_log_error(error, self._what) from error
        if asyncio.get_running_loop().time() + self._wait >= self.deadline:
            self._raise_expired(error)
        await asyncio.sleep(self._wait)
        self._wait = min(self._wait * 2, self._longest)

    @asynccontextmanager
    async def limited(self) -> AsyncIterator[None]:
        """Limits the block to the deadline."""
        limit = asyncio.timeout_at(self.deadline)
        try:
            async with limit:
                yield
        except TimeoutError as error:
            if not limit.expired():
                raise
            self._raise_expired(error)

    def _raise_expired(self, error: BaseException) -> NoReturn:
        reason = str(error) or type(error).__name__  # aiokafka's errors begin with their names
        raise LogUnavailableError(f"{self._what}: no success within {self._seconds:g} s ({reason})") from error
