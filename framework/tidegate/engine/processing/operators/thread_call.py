"""The call of a synchronous handler in a thread.

Like a suspended handler it works on private cells, a private journal and private outputs, which the event loop merges
when the handler has returned. Shared objects, such as the cells of a state and the store below, are accessed by the
event loop's thread only: for a read that misses the private cells, the thread *asks* the event loop and waits for the
answer. So no lock is needed, and a handler in a thread reads the same values as one in the event loop.

A thread cannot be stopped. A call that is *abandoned*, because it has timed out or its task closes, runs to its end,
but its accesses to the context raise HandlerOverError from then on, and its changes are discarded.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from tidegate.errors import HandlerOverError

__all__ = ("ThreadCall",)

logger = logging.getLogger(__name__)

T = TypeVar("T")


class ThreadCall:
    def __init__(
        self,
        name: str,
        function: Callable[[], Any],
        variables: contextvars.Context,
        *,
        on_start: Callable[[ThreadCall], None],
        on_end: Callable[[ThreadCall, BaseException | None], None],
    ) -> None:
        """`on_start`, `on_end`: called in the event loop; `on_end` also if the call was abandoned."""
        self._name, self._function, self._variables = name, function, variables
        self._on_start, self._on_end = on_start, on_end
        self._loop, self._loop_thread = asyncio.get_running_loop(), threading.get_ident()
        self._questions: set[Future[Any]] = set()
        self._started_at = 0.0
        self.abandoned = False
        self.ended: asyncio.Future[None] = self._loop.create_future()

    # -- in the thread -----------------------------------------------------------------------------------------------
    def run(self) -> None:
        error: BaseException | None = None
        if not self.abandoned:
            self._started_at = time.monotonic()
            self._post(partial(self._on_start, self))
            try:
                self._variables.run(self._function)
            except BaseException as failure:  # the event loop handles it, whatever its class
                error = failure
        self._post(partial(self._end, error))

    def ask(self, question: Callable[[], T]) -> T:
        """Run the question in the event loop, and wait for its answer. HandlerOverError: the call was abandoned."""
        if threading.get_ident() == self._loop_thread:
            return question()
        answer: Future[T] = Future()
        self._questions.add(answer)
        if self.abandoned or not self._post(partial(self._answer, question, answer)):
            raise HandlerOverError
        try:
            return answer.result()
        finally:
            self._questions.discard(answer)

    def _post(self, callback: Callable[[], None]) -> bool:
        """Schedule a callback in the event loop. False: the loop is closed, since the worker has ended."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback)
            return True
        return False

    # -- in the event loop -------------------------------------------------------------------------------------------
    def _answer(self, question: Callable[[], T], answer: Future[T]) -> None:
        if answer.done():
            return
        try:
            answer.set_result(question())
        except Exception as error:
            answer.set_exception(error)

    def abandon(self) -> None:
        self.abandoned = True
        for answer in [*self._questions]:
            if not answer.done():
                answer.set_exception(HandlerOverError())

    def _end(self, error: BaseException | None) -> None:
        self.ended.set_result(None)
        if self.abandoned and self._started_at:
            seconds = time.monotonic() - self._started_at
            logger.warning("%s returned after %.1f s: its result is discarded", self._name, seconds)
        self._on_end(self, error)
