"""Measures the time that a coroutine uses of the event loop, without the time that it waits."""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from time import perf_counter
from typing import Any, TypeVar

__all__ = ("Stopwatch",)

T = TypeVar("T")


class Stopwatch:
    def __init__(self) -> None:
        self.seconds = 0.0
        """Time in the event loop, without threads and other tasks."""

    @types.coroutine
    def measure(self, coroutine: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
        """Await the coroutine, and add the time of its steps."""
        step: Callable[[], Any] = partial(coroutine.send, None)
        while True:
            started = perf_counter()
            try:
                yielded = step()
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]
            finally:
                self.seconds += perf_counter() - started
            try:
                sent = yield yielded
            except BaseException as error:
                step = partial(coroutine.throw, error)
            else:
                step = partial(coroutine.send, sent)
