"""Handlers of records, timers and messages: as declared, and bound to one set of state objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tidegate.codecs import allows_none
from tidegate.errors import DefinitionError
from tidegate.functions.declaration.handler_call import BoundHandler, Rearranged, bound_handler, is_async

__all__ = ("MESSAGES", "Handler", "HandlerSpec", "InputHandler", "MessageDispatch")

Handler = Callable[..., Any]


class InputHandler:
    """The handler of an input's records: a `HandlerSpec`, `MESSAGES`, or an operator of the engine."""

    @property
    def takes_tombstones(self) -> bool:
        """Whether it is called with None for a tombstone."""
        return False


class MessageDispatch(InputHandler):
    """Passes each message of a mailbox to the handler of its type."""

    def __repr__(self) -> str:
        return "MESSAGES"


MESSAGES: Final = MessageDispatch()


@dataclass(frozen=True, kw_only=True)
class HandlerSpec(InputHandler):
    """A user's handler: a function and the states that it takes, or a method of the service's class."""

    function: Handler | None = None
    states: tuple[str, ...] = ()
    """The names of the function's states, in the order of its parameters."""
    method: str = ""
    event_type: Any = Any
    """The type of the annotated event; Any without an annotation."""

    @property
    def takes_tombstones(self) -> bool:
        return allows_none(self.event_type)

    @property
    def label(self) -> str:
        function = self.function.function if isinstance(self.function, Rearranged) else self.function
        return self.method or getattr(function, "__qualname__", repr(function))

    def is_async(self, prototype: Any) -> bool:
        """`prototype`: of the service's class; None in the function form."""
        return is_async(getattr(prototype, self.method) if self.function is None else self.function)

    def bind(self, states: Mapping[str, Any], instance: Any) -> BoundHandler:
        """`instance`: of the service's class, which has its states as attributes; None in the function form."""
        if self.function is not None:
            call, wanted = self.function, tuple(states[name] for name in self.states)
        elif instance is not None and self.method:
            call, wanted = getattr(instance, self.method), ()
        else:
            raise DefinitionError("a handler must be a function, or a method of the service's class")
        return bound_handler(call, wanted)
