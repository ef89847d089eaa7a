"""Declared handlers of records, timers and messages, and how they are bound to state handles."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tidegate.codecs import allows_none
from tidegate.errors import DefinitionError
from tidegate.functions.declaration.handler_call import BoundHandler, ReorderedHandler, bound_handler, is_async

__all__ = ("MESSAGES", "Handler", "HandlerSpec", "InputHandler", "MessageDispatch")

Handler = Callable[..., Any]


class InputHandler:
    """The handler of the records of an input: a `HandlerSpec`, `MESSAGES`, or an operator of the engine."""

    @property
    def takes_tombstones(self) -> bool:
        """Whether it gets None for a tombstone. If not, the error policy applies to tombstones."""
        return False


class MessageDispatch(InputHandler):
    """Dispatches each message of a mailbox to the handler of its type."""

    def __repr__(self) -> str:
        return "MESSAGES"


MESSAGES: Final = MessageDispatch()


@dataclass(frozen=True, kw_only=True)
class HandlerSpec(InputHandler):
    """A user's handler: a function with its states, or a method of the service's class."""

    function: Handler | None = None
    states: tuple[str, ...] = ()
    """The names of the function's states, in the order of its parameters."""
    method: str = ""
    event_type: Any = Any
    """The annotated type of the event; Any: not annotated."""

    @property
    def takes_tombstones(self) -> bool:
        return allows_none(self.event_type)

    @property
    def label(self) -> str:
        function = self.function.function if isinstance(self.function, ReorderedHandler) else self.function
        return self.method or getattr(function, "__qualname__", repr(function))

    def is_async(self, prototype: Any) -> bool:
        """`prototype`: an instance of the service's class; None for functions."""
        return is_async(getattr(prototype, self.method) if self.function is None else self.function)

    def bind(self, states: Mapping[str, Any], instance: Any) -> BoundHandler:
        """`instance`: of the service's class, with its states as attributes; None for functions."""
        if self.function is not None:
            return bound_handler(self.function, tuple(states[name] for name in self.states))
        if instance is None or not self.method:
            raise DefinitionError("a handler must be a function, or a method of the service's class")
        return bound_handler(getattr(instance, self.method))
