"""A message to an actor was not handled successfully."""

from __future__ import annotations

from tidegate.errors.base import TidegateError

__all__ = (
    "ActorError",
    "AskTimeoutError",
    "IdempotencyError",
    "MessageFailedError",
    "RejectedError",
)


class ActorError(TidegateError):
    """A message to an actor was not handled successfully."""


class RejectedError(ActorError):
    """Raise it in a message handler to reject the message: the message has no effect, and the sender of an ask gets
    this error."""


class MessageFailedError(ActorError):
    """The handler failed, and its service's error policy gave the message up."""

    def __init__(self, service: str, kind: str, reason: str) -> None:
        self.service, self.kind, self.reason = service, kind, reason
        super().__init__(f"service {service!r} could not handle the message: {kind}: {reason}. It had no effect.")


class AskTimeoutError(ActorError, TimeoutError):
    """No reply came in time. The message may still be handled."""

    def __init__(self, service: str, seconds: float, idempotency_key: str | None) -> None:
        self.service, self.seconds, self.idempotency_key = service, seconds, idempotency_key
        retry = "with the same idempotency key" if idempotency_key is not None else "only if duplicates are harmless"
        super().__init__(
            f"service {service!r} did not reply within {seconds:g} s. The message may be in its mailbox and be "
            f"handled later: retry {retry}."
        )


class IdempotencyError(ActorError):
    """The idempotency key was already used for a different message."""

    def __init__(self, service: str, idempotency_key: str) -> None:
        self.service, self.idempotency_key = service, idempotency_key
        super().__init__(
            f"service {service!r} has already handled a different message with the idempotency key "
            f"{idempotency_key!r}: use a new key for a new message. This message had no effect."
        )
