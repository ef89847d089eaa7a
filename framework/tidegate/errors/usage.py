"""The program or the command is wrong."""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.errors.base import TidegateError

__all__ = (
    "AppNotFoundError",
    "DefinitionError",
    "HandlerOverError",
    "InsideHandlerError",
    "SettingsError",
    "UndeclaredOutputError",
    "UnknownMessageError",
    "UnknownNameError",
    "UnknownTimerError",
    "UsageError",
)


class UsageError(TidegateError):
    """The program or the command is wrong."""


class DefinitionError(UsageError):
    """A handler, topic or service is declared wrongly."""


class UndeclaredOutputError(UsageError):
    def __init__(self, service: str, topic: str, declared: Iterable[str]) -> None:
        self.service, self.topic, self.declared = service, topic, tuple(declared)
        known = ", ".join(self.declared) or "none"
        super().__init__(
            f"service {service!r} emits to {topic!r}, which it does not declare (declared: {known}). "
            f"Add the topic to its outputs: @app.process(..., to=[...])."
        )


class UnknownTimerError(UsageError):
    def __init__(self, service: str, name: str) -> None:
        self.service, self.name = service, name
        super().__init__(
            f"service {service!r} sets a timer {name!r} that no handler is registered for. "
            f"Write a handler for it: @{service}.on_timer({name!r})."
        )


class UnknownMessageError(UsageError):
    def __init__(self, service: str, message: str, known: Iterable[str]) -> None:
        self.service, self.message, self.known = service, message, tuple(known)
        if self.known:
            text = f"service {service!r} handles no message {message!r}; it handles: {', '.join(self.known)}."
        else:
            text = f"service {service!r} handles no messages."
        super().__init__(f"{text} Write a handler for it: @{service}.on({message}).")


class InsideHandlerError(UsageError):
    def __init__(self, verb: str, task: str, target: str) -> None:
        self.verb, self.task, self.target = verb, task, target
        if verb == "ask":
            text = (
                f"a handler of {task} asks {target!r}: the request would be sent only with the commit, and the commit "
                f"waits for the answer. Use ctx.tell({target}, key, message), and have {target!r} tell the answer back."
            )
        elif verb == "tell":
            text = (
                f"a handler of {task} sends {target!r} a message outside of its transaction: it would be sent again "
                f"whenever the handler is repeated. Use ctx.tell({target}, key, message)."
            )
        else:
            text = (
                f"a handler of {task} sends to {target!r} outside of its transaction: it would be sent again whenever "
                f"the handler is repeated. Declare the topic, @app.process(..., to=[...]), and use "
                f"ctx.emit(value, to={target!r})."
            )
        super().__init__(text)


class HandlerOverError(UsageError):
    def __init__(self) -> None:
        super().__init__(
            "a context and its states are valid only while their handler runs, and this handler has ended. "
            "Await what the handler starts: asyncio.gather(...), or a TaskGroup. In a thread: the handler has run into "
            "its timeout=, or its task has closed."
        )


class AppNotFoundError(UsageError):
    """MODULE:APP does not lead to an app."""


class UnknownNameError(UsageError):
    def __init__(self, kind: str, name: str, known: Iterable[str], *, of: str = "here") -> None:
        self.kind, self.name, self.known = kind, name, tuple(sorted(known))
        super().__init__(f"there is no {kind} {name!r} {of}; known: {', '.join(self.known) or 'none'}")


class SettingsError(UsageError):
    """An option or an environment variable has an impossible value."""
