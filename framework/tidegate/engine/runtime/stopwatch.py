"""How long a coroutine holds the event loop, whatever it waits for in between."""

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
        """Of the loop. What ran in threads and in tasks of their own is not in it."""

    @types.coroutine
    def around(self, coroutine: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
        """Await this, and count the time of its own turns."""
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
