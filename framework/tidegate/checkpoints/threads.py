"""Work in threads, which cannot be cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

__all__ = ("to_its_end",)


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
