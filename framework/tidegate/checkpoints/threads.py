"""Work in threads, which cannot be cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

__all__ = ("to_its_end",)


async def to_its_end(work: Awaitable[None]) -> None:
    """Whoever is cancelled meanwhile waits until the thread is done with the store and its files."""
    future = asyncio.ensure_future(work)
    try:
        await asyncio.shield(future)
    except asyncio.CancelledError:
        await asyncio.gather(future, return_exceptions=True)
        raise
