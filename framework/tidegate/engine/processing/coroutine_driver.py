"""Drives handlers' coroutines.

A handler that never suspends is driven directly: `coroutine.send(None)` runs it to its end, without an asyncio task per
record and without a turn of the event loop (measured: a task per record costs 3 to 5 times as much as the handler).
But libraries use `asyncio.current_task()`: `asyncio.timeout()` cancels it, anyio ties scopes to it. So each driver owns
a sleeping asyncio task, which is the current task while the driver runs a coroutine directly. If the coroutine
suspends, the same task wakes up and runs the rest of it.
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
"""Errors that fail one handler, not the worker: `sys.exit` in a handler would end the worker at every restart."""

T = TypeVar("T")
Done = Callable[[BaseException | None], None]


class CoroutineDriver:
    """Drives one handler at a time. After `resume` it is busy until that handler ends."""

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
        """A copy of the context variables of handlers, for a handler in a thread."""
        return self._context.copy()

    def resume(self, coroutine: Coroutine[Any, Any, Any], yielded: Any, done: Done) -> None:
        """Run the rest of a coroutine that has just yielded; `done` gets its exception, or None."""
        if self._handover.done():  # the coroutine cancelled its own task before it suspended
            self._handover = self._loop.create_future()
        self._handover.set_result((coroutine, yielded, done))

    def cancel(self) -> None:
        """Cancel the resumed coroutine."""
        self._requested += 1
        self._task.cancel()

    async def close(self) -> None:
        """Cancel the resumed coroutine, and wait for its end; `done` is not called."""
        await asyncio.sleep(0)  # a task cancelled before its first step would never see the coroutine
        self._closing = True
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _serve(self) -> None:
        """Run one coroutine after another, until other code cancels this task: an event loop that closes cancels all of
        its tasks and waits for their end. `drive` starts a new task if it is called after that."""
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
        """Wait for a coroutine. Also returns whether it was cancelled before: `asyncio.timeout(0)` does that."""
        cancelled = False
        while True:
            try:
                return await self._handover, cancelled
            except asyncio.CancelledError:
                if self._handover.cancelled() or not self._handover.done():
                    raise
                cancelled = True

    def _forget_cancellation(self) -> None:
        """Reset the task's count of cancellations for the next coroutine: `asyncio.timeout` and task groups use it."""
        self._requested = 0
        while self._task.cancelling():
            self._task.uncancel()


@types.coroutine
def _resume(coroutine: Coroutine[Any, Any, T], yielded: Any, cancelled: bool) -> Generator[Any, Any, T]:
    """Await a coroutine that was started outside of this task and waits for `yielded`. `cancelled`: cancel it as a task
    would."""
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
