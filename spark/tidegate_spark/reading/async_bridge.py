"""Runs coroutines from synchronous code."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ("run_sync",)

T = TypeVar("T")


def run_sync(awaited: Coroutine[Any, Any, T]) -> T:
    """Run in a thread of its own, since the caller may be inside a running event loop."""
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
