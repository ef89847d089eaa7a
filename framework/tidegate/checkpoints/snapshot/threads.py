"""Blocking work in threads, which cannot be cancelled."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import ParamSpec, TypeVar

__all__ = ("StorageThreads", "run_to_completion")

T = TypeVar("T")
P = ParamSpec("P")


async def run_to_completion(work: Awaitable[None]) -> None:
    """Await the work even if the caller is cancelled meanwhile, also repeatedly; then raise the CancelledError. The
    caller must not release files that the thread still uses."""
    future = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None:
        return future.result()
    if not future.cancelled():
        future.exception()  # retrieve it, or asyncio logs it as never retrieved
    raise cancelled


class StorageThreads:
    """Threads for calls of a storage, which may hang rather than fail: a caller may abandon its call.

    These are daemon threads outside asyncio's executor: hanging calls would block the executor's other users, and the
    end of the process."""

    def __init__(self, limit: int) -> None:
        """`limit`: concurrent calls, abandoned ones included."""
        self._free = asyncio.Semaphore(limit)

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.shield(await self.start(work, *args, **kwargs))

    async def start(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
        """Waits until a thread is free, then returns the future of the started call."""
        await self._free.acquire()
        future = _start_thread(lambda: work(*args, **kwargs))
        future.add_done_callback(self._finished)
        return future

    def _finished(self, future: asyncio.Future[T]) -> None:
        self._free.release()
        if not future.cancelled():
            future.exception()  # retrieve it: an abandoned call has no caller to do so


def _start_thread(work: Callable[[], T]) -> asyncio.Future[T]:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(outcome: T | BaseException, *, failed: bool) -> None:
        if not future.done():
            future.set_exception(outcome) if failed else future.set_result(outcome)  # type: ignore[arg-type]

    def run() -> None:
        outcome: T | BaseException
        failed = False
        try:
            outcome = work()
        except BaseException as error:
            outcome, failed = error, True
        with suppress(RuntimeError):  # the loop is closed, and with it every caller gone
            loop.call_soon_threadsafe(lambda: settle(outcome, failed=failed))

    threading.Thread(target=run, name="tidegate-storage", daemon=True).start()
    return future
