"""Waiting for what is async, from code that is not."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ("waited",)

T = TypeVar("T")


def waited(awaited: Coroutine[Any, Any, T]) -> T:
    """From anywhere: whoever calls may have an event loop that runs."""
    found: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            found.append(asyncio.run(awaited))
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return found[0]
