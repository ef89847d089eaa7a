"""The types of the decorators of handlers, which determine the functions that a type checker accepts.

A handler takes the context, then the event (or timer, or message), then its states, and returns nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from tidegate.functions.context import Context
from tidegate.functions.process import ProcessFunction

if TYPE_CHECKING:
    from tidegate.functions.service import Service

__all__ = ("MessageDecorator", "MessageMethodDecorator", "ProcessDecorator", "TimerDecorator")

P = ParamSpec("P")
T = TypeVar("T", covariant=True)
K = TypeVar("K")
K_co = TypeVar("K_co", covariant=True)
R = TypeVar("R", contravariant=True)
S = TypeVar("S")
M = TypeVar("M")
Q = TypeVar("Q")
Done = TypeVar("Done", bound=Awaitable[None] | None)


class ProcessDecorator(Protocol[T]):
    """Creates a service from the handler of events of type T: a function, a ProcessFunction class, or an instance."""

    @overload
    def __call__(self, handler: Callable[Concatenate[Context[K], T, P], Awaitable[None] | None], /) -> Service[K]: ...

    @overload
    def __call__(self, handler: type[ProcessFunction[T, Any]] | ProcessFunction[T, Any], /) -> Service[Any]: ...


class TimerDecorator(Protocol[K_co]):
    """Takes a function of the context, optionally the timer, and states."""

    def __call__(self, handler: Callable[Concatenate[Context[K_co], P], Done], /) -> Callable[..., Done]: ...


class MessageDecorator(Protocol[K_co, T, R]):
    """Takes a function that handles messages of type T and may reply with an R."""

    def __call__(self, handler: Callable[Concatenate[Context[K_co, R], T, P], Done], /) -> Callable[..., Done]: ...


class MessageMethodDecorator(Protocol[M, Q]):
    """Takes a method of a ProcessFunction that handles messages. Its states are attributes of the class."""

    def __call__(
        self, method: Callable[[S, Context[Any, Q], M], Done], /
    ) -> Callable[[S, Context[Any, Q], M], Done]: ...
