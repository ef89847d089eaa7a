"""A query of committed state cannot be answered."""

from __future__ import annotations

from tidegate.errors.base import TidegateError

__all__ = (
    "ElsewhereError",
    "NotQueryableError",
    "NotReadyError",
    "PositionError",
    "PositionNotReachedError",
    "QueryError",
    "RequestConflictError",
    "ValueTooLargeError",
)


class QueryError(TidegateError):
    """A query of committed state cannot be answered."""


class NotReadyError(QueryError):
    def __init__(self, what: str, reason: str) -> None:
        self.what, self.reason = what, reason
        super().__init__(f"{what} cannot be read now: {reason}. Retry in a moment.")


class ElsewhereError(QueryError):
    def __init__(self, service: str, task: int) -> None:
        self.service, self.task = service, task
        super().__init__(f"task {task} of service {service!r} runs in another worker")


class PositionError(QueryError):
    """The position token does not belong to this service or run."""


class PositionNotReachedError(QueryError):
    def __init__(self, task: str, seconds: float) -> None:
        self.task, self.seconds = task, seconds
        super().__init__(f"task {task} has not committed the requested position within {seconds:g} s. Retry.")


class NotQueryableError(QueryError):
    def __init__(self, service: str, state: str) -> None:
        self.service, self.state = service, state
        super().__init__(f"state {state!r} of service {service!r} cannot be queried: it is declared Queryable(False)")


class ValueTooLargeError(QueryError):
    def __init__(self, limit: int) -> None:
        self.limit = limit
        super().__init__(
            f"the value takes more than {limit:,} bytes, the limit of a response (api_max_bytes). Request one entry of "
            f"a map (?at=NAME), the states of an actor one by one, or fewer keys in a batch."
        )


class RequestConflictError(QueryError):
    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(f"the idempotency key {key!r} was already used for a different request. Use a new key.")
