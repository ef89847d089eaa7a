"""A plain handler that runs in a thread.

It works on private state from its first step on, as a handler does that has suspended: its context, its journal and its
outputs are its own, and the event loop merges them when it has returned. What is shared, such as the cells of a state
and the store below, belongs to the event loop, and no other thread touches it: a read that finds nothing in the private
state is *asked* of the loop, and the thread waits for the answer. So no lock is needed, and a handler in a thread sees
what it would see in the loop.

A thread cannot be stopped. A call that is *abandoned*, because it has timed out or its task closes, goes on to its end,
but its context is over: what it reads or emits from then on raises HandlerOverError, and nothing of it is merged.
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
            except BaseException as failure:  # it must reach the event loop, whatever it is
                error = failure
        self._post(partial(self._end, error))

    def ask(self, question: Callable[[], T]) -> T:
        """The answer of the event loop. HandlerOverError: the call was abandoned."""
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
        """Have the event loop call this. False: the loop is closed, so that the worker is at its end."""
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
