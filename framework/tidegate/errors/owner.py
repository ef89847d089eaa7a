"""A request to the process that owns a log was not carried out."""

from __future__ import annotations

from tidegate.errors.base import TidegateError

__all__ = (
    "OwnerError",
    "OwnerLeftError",
    "OwnerLostError",
    "OwnerSilentError",
    "RefusedError",
)


class OwnerError(TidegateError):
    """A request to the process that owns a log was not carried out."""


class OwnerSilentError(OwnerError):
    def __init__(self, owner: str, seconds: float) -> None:
        self.owner, self.seconds = owner, seconds
        super().__init__(
            f"{owner} owns the log but has not answered for {seconds:g} s. If it hangs, stop it and retry."
        )


class OwnerLeftError(OwnerError):
    def __init__(self, owner: str) -> None:
        self.owner = owner
        super().__init__(f"{owner} stopped before it accepted the request; nothing was done. Retry.")


class OwnerLostError(OwnerError):
    def __init__(self, owner: str) -> None:
        self.owner = owner
        super().__init__(f"{owner} ended before it answered: the last request may have been carried out, or not")


class RefusedError(OwnerError):
    def __init__(self, kind: str, message: str) -> None:
        self.kind = kind
        super().__init__(message)
