"""How the engine calls a handler: the function, the states it takes, and whether its call needs a coroutine.

A handler is an `async def` or a plain `def`. A plain one is called directly: when the call returns, the handler has
finished. So is an `async def` that awaits nothing (see `sync_call`); only the others become coroutines.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tidegate.errors import UsageError
from tidegate.functions.declaration.sync_call import without_coroutine

__all__ = ("BoundHandler", "Rearranged", "bound_handler", "check_result", "is_async", "wraps_async")

Function = Callable[..., Any]


class Rearranged:
    """Wraps a handler with its own order of parameters as one that takes context, event, and states."""

    __slots__ = ("function", "order")

    def __init__(self, function: Function, order: Sequence[int]) -> None:
        self.function, self.order = function, tuple(order)

    def __call__(self, *arguments: Any) -> Any:
        return self.function(*[arguments[index] for index in self.order])


class BoundHandler(NamedTuple):
    """A handler with one set of state objects. It takes the context, the event (or the timer, or the message), and
    the states."""

    function: Function
    direct: Function | None
    """The handler as a plain function; None: the handler may suspend, so `function` returns a coroutine."""
    states: tuple[Any, ...] = ()

    def run(self, service: str, context: Any, event: Any) -> None:
        """Call it directly. Only with `direct`."""
        assert self.direct is not None  # noqa: S101  asked before
        result = self.direct(context, event, *self.states)
        if result is not None:
            check_result(result, service)


def bound_handler(function: Function, states: tuple[Any, ...] = ()) -> BoundHandler:
    return BoundHandler(function, _direct(function), states)


def _direct(function: Function) -> Function | None:
    if isinstance(function, Rearranged):
        direct = _direct(function.function)
        return None if direct is None else Rearranged(direct, function.order)
    return without_coroutine(function) if is_async(function) else function


def is_async(function: Function) -> bool:
    """Whether a call of it makes a coroutine."""
    if isinstance(function, Rearranged):
        return is_async(function.function)
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def wraps_async(function: Function) -> bool:
    """Whether it is a plain function around an `async def`, such as a decorator's wrapper that does not await."""
    return not is_async(function) and is_async(inspect.unwrap(function))


def check_result(result: Any, service: str) -> None:
    """Refuse the result of a direct call that is not None: a coroutine would never run."""
    if not inspect.isawaitable(result):
        return
    if inspect.iscoroutine(result):
        result.close()
    raise UsageError(
        f"a handler of {service!r} returns {type(result).__name__!r}, which the engine does not await: write the "
        f"handler as 'async def' and await it there"
    )
