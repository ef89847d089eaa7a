"""Work in threads, which cannot be cancelled."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import ParamSpec, TypeVar

__all__ = ("Threads", "to_its_end")

T = TypeVar("T")
P = ParamSpec("P")


async def to_its_end(work: Awaitable[None]) -> None:
    """Whoever is cancelled meanwhile, be it more than once, waits until the thread is done with the store and its
    files."""
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
        future.exception()  # nobody asks for it
    raise cancelled


class Threads:
    """For calls of a storage, which may hang rather than fail: whoever waits for one may leave it to itself.

    They are not asyncio's: a few that hang would hold up everything else that needs one, and the end of the process."""

    def __init__(self, most: int) -> None:
        """`most`: how many at the same time, those included that nobody waits for any more."""
        self._free = asyncio.Semaphore(most)

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.shield(await self.start(work, *args, **kwargs))

    async def start(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
        """When there is room for it."""
        await self._free.acquire()
        future = _in_a_thread(lambda: work(*args, **kwargs))
        future.add_done_callback(self._over)
        return future

    def _over(self, future: asyncio.Future[T]) -> None:
        self._free.release()
        if not future.cancelled():
            future.exception()  # whoever waits is told


def _in_a_thread(work: Callable[[], T]) -> asyncio.Future[T]:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def tell(outcome: T | BaseException, *, failed: bool) -> None:
        if not future.done():
            future.set_exception(outcome) if failed else future.set_result(outcome)  # type: ignore[arg-type]

    def run() -> None:
        outcome: T | BaseException
        failed = False
        try:
            outcome = work()
        except BaseException as error:
            outcome, failed = error, True
        with suppress(RuntimeError):  # the loop is closed: nobody is there to hear of it
            loop.call_soon_threadsafe(lambda: tell(outcome, failed=failed))

    threading.Thread(target=run, name="tidegate-storage", daemon=True).start()
    return future
