"""Drives handlers' coroutines.

A handler that never waits is driven directly: `coroutine.send(None)` runs it to its end, with no asyncio task of its
own and no turn of the event loop (measured: a task per record costs 3 to 5 times what the handler itself does).
Libraries that handlers use look at `asyncio.current_task()`, though: `asyncio.timeout()` cancels it, anyio ties
scopes to it. So a runner owns a real, sleeping asyncio task; while it drives directly, that task counts as the
current one, and if the coroutine does suspend, that same task wakes up and goes on with it.
"""

from __future__ import annotations

import asyncio
import contextvars
import types
from asyncio.tasks import _enter_task, _leave_task
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

__all__ = ("Runner",)

T = TypeVar("T")
Done = Callable[[BaseException | None], None]


class Runner:
    """Drives one handler at a time. Once it is handed a suspended one, it is busy until that ends."""

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str) -> None:
        self._loop = loop
        self._context = contextvars.copy_context()
        self._handover: asyncio.Future[tuple[Coroutine[Any, Any, Any], Any, Done]] = loop.create_future()
        self._task = loop.create_task(self._serve(), name=name, context=self._context)
        self._closing = False

    def drive(self, function: Callable[[], T]) -> T:
        """Call `function`, which sends into coroutines, as if from inside this runner's task."""
        outer = asyncio.current_task(self._loop)
        if outer is not None:
            _leave_task(self._loop, outer)
        _enter_task(self._loop, self._task)
        try:
            return self._context.run(function)
        finally:
            _leave_task(self._loop, self._task)
            if outer is not None:
                _enter_task(self._loop, outer)

    def take_over(self, coroutine: Coroutine[Any, Any, Any], yielded: Any, done: Done) -> None:
        """Go on with a coroutine that has just yielded; `done` gets its exception, or None."""
        self._handover.set_result((coroutine, yielded, done))

    def cancel(self) -> None:
        """Cancel the coroutine that was taken over."""
        self._task.cancel()

    async def close(self) -> None:
        self._closing = True
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _serve(self) -> None:
        while True:
            coroutine, yielded, done = await self._handover
            self._handover = self._loop.create_future()
            error: BaseException | None = None
            try:
                await _resume(coroutine, yielded)
            except asyncio.CancelledError as cancelled:
                if self._closing:
                    raise
                self._task.uncancel()
                error = cancelled
            except Exception as failure:
                error = failure
            done(error)


@types.coroutine
def _resume(coroutine: Coroutine[Any, Any, T], yielded: Any) -> Generator[Any, Any, T]:
    """Await a coroutine that was started elsewhere and is waiting for `yielded`."""
    while True:
        try:
            sent = yield yielded
        except BaseException as error:
            try:
                yielded = coroutine.throw(error)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]
        else:
            try:
                yielded = coroutine.send(sent)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]
