"""Drives handlers' coroutines.

A handler that never waits is driven directly: `coroutine.send(None)` runs it to its end, with no asyncio task of its
own and no turn of the event loop (measured: a task per record costs 3 to 5 times what the handler itself does).
Libraries that handlers use look at `asyncio.current_task()`, though: `asyncio.timeout()` cancels it, anyio ties
scopes to it. So a driver owns a real, sleeping asyncio task; while it drives directly, that task counts as the
current one, and if the coroutine does suspend, that same task wakes up and goes on with it.
"""

from __future__ import annotations

import asyncio
import contextvars
import types
from asyncio.tasks import _enter_task, _leave_task
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Final, TypeVar

from tidegate.functions.messages import handling

__all__ = ("FAILURES", "CoroutineDriver")

FAILURES: Final = (Exception, asyncio.CancelledError, SystemExit)
"""With what a handler fails, alone: `sys.exit` in one record's handler would end the worker at each of its starts."""

T = TypeVar("T")
Done = Callable[[BaseException | None], None]


class CoroutineDriver:
    """Drives one handler at a time. Once it is handed a suspended one, it is busy until that ends."""

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str) -> None:
        self._loop = loop
        self._context = contextvars.copy_context()
        self._context.run(handling.set, name)
        self._name = name
        self._closing = False
        self._start()

    def _start(self) -> None:
        self._handover: asyncio.Future[tuple[Coroutine[Any, Any, Any], Any, Done]] = self._loop.create_future()
        self._requested = 0
        """How often `cancel` has cancelled the coroutine, as opposed to other callers."""
        self._task = self._loop.create_task(self._serve(), name=self._name, context=self._context)

    def drive(self, function: Callable[[], T]) -> T:
        """Call `function`, which sends into coroutines, as if from inside this driver's task."""
        if self._task.done():
            self._start()
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

    def variables(self) -> contextvars.Context:
        """A copy of the context variables that handlers see, for one that goes on in a thread."""
        return self._context.copy()

    def resume(self, coroutine: Coroutine[Any, Any, Any], yielded: Any, done: Done) -> None:
        """Go on with a coroutine that has just yielded; `done` gets its exception, or None."""
        if self._handover.done():  # the coroutine has cancelled its task, and only now comes to wait
            self._handover = self._loop.create_future()
        self._handover.set_result((coroutine, yielded, done))

    def cancel(self) -> None:
        """Cancel the coroutine that was taken over."""
        self._requested += 1
        self._task.cancel()

    async def close(self) -> None:
        """Cancel the coroutine that was taken over, and wait for its end; `done` is not called."""
        await asyncio.sleep(0)  # a task that is cancelled before its first step would not take over what it was given
        self._closing = True
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _serve(self) -> None:
        """One coroutine after the other, until somebody else cancels this task: a loop that is being closed cancels all
        of its tasks and waits for their end. `drive` makes a new one, should there be more to drive."""
        over = False
        while not (over or self._closing):
            (coroutine, yielded, done), cancelled = await self._next()
            self._handover = self._loop.create_future()
            error: BaseException | None = None
            try:
                await _resume(coroutine, yielded, cancelled)
            except FAILURES as failure:
                error = failure
            over = self._task.cancelling() > self._requested
            self._forget_cancellation()
            if not self._closing:
                done(error)

    async def _next(self) -> tuple[tuple[Coroutine[Any, Any, Any], Any, Done], bool]:
        """Wait for a coroutine. Whether it was cancelled in the meantime: `asyncio.timeout(0)` does that."""
        cancelled = False
        while True:
            try:
                return await self._handover, cancelled
            except asyncio.CancelledError:
                if self._handover.cancelled() or not self._handover.done():
                    raise
                cancelled = True

    def _forget_cancellation(self) -> None:
        """The next coroutine was not cancelled: `asyncio.timeout` and task groups count such requests."""
        self._requested = 0
        while self._task.cancelling():
            self._task.uncancel()


@types.coroutine
def _resume(coroutine: Coroutine[Any, Any, T], yielded: Any, cancelled: bool) -> Generator[Any, Any, T]:
    """Await a coroutine that was started elsewhere and is waiting for `yielded`; if cancelled, as a task does it."""
    thrown: BaseException | None = None
    if cancelled and (yielded is None or not yielded.cancel()):
        thrown = asyncio.CancelledError()
    sent: Any = None
    while True:
        if thrown is None:
            try:
                sent = yield yielded
            except BaseException as error:
                thrown = error
        try:
            if thrown is None:
                yielded = coroutine.send(sent)
            else:
                failure, thrown = thrown, None
                yielded = coroutine.throw(failure)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
