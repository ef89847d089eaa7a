"""How the engine calls a handler: the function, its states, and whether the call creates a coroutine.

A handler is a `def` or an `async def`. A `def` is called directly: when the call returns, the handler has finished. The
same applies to an `async def` that awaits nothing (see `sync_call`). Only other handlers run as coroutines.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tidegate.errors import UsageError
from tidegate.functions.declaration.sync_call import without_coroutine

__all__ = ("BoundHandler", "ReorderedHandler", "bound_handler", "check_result", "is_async", "wraps_async")

Function = Callable[..., Any]


class ReorderedHandler:
    """Wraps a handler with another order of parameters, so that it takes context, event and states in this order."""

    __slots__ = ("function", "order")

    def __init__(self, function: Function, order: Sequence[int]) -> None:
        self.function, self.order = function, tuple(order)

    def __call__(self, *arguments: Any) -> Any:
        return self.function(*[arguments[index] for index in self.order])


class BoundHandler(NamedTuple):
    """A handler with one set of state handles. It takes the context, the event (or timer, or message), and the
    states."""

    function: Function
    direct: Function | None
    """The handler as a plain function; None: it may suspend, and `function` returns a coroutine."""
    states: tuple[Any, ...] = ()

    def run(self, service: str, context: Any, event: Any) -> None:
        """Calls the handler directly. Requires `direct`."""
        assert self.direct is not None  # noqa: S101  callers check it
        result = self.direct(context, event, *self.states)
        if result is not None:
            check_result(result, service)


def bound_handler(function: Function, states: tuple[Any, ...] = ()) -> BoundHandler:
    return BoundHandler(function, _direct(function), states)


def _direct(function: Function) -> Function | None:
    if isinstance(function, ReorderedHandler):
        direct = _direct(function.function)
        return None if direct is None else ReorderedHandler(direct, function.order)
    return without_coroutine(function) if is_async(function) else function


def is_async(function: Function) -> bool:
    """Whether a call returns a coroutine."""
    if isinstance(function, ReorderedHandler):
        return is_async(function.function)
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def wraps_async(function: Function) -> bool:
    """Whether it is a plain function around an `async def`, such as the wrapper of a decorator that is not async."""
    return not is_async(function) and is_async(inspect.unwrap(function))


def check_result(result: Any, service: str) -> None:
    """Checks the discarded result of a direct call. UsageError: it is awaitable, so its work would be lost."""
    if not inspect.isawaitable(result):
        return
    if inspect.iscoroutine(result):
        result.close()
    raise UsageError(
        f"a handler of {service!r} returns {type(result).__name__!r}, which the engine does not await: write the "
        f"handler as 'async def' and await it there"
    )
