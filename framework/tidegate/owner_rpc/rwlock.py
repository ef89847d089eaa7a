"""A shared/exclusive lock for coroutines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

__all__ = ("RWLock",)


class RWLock:
    """Users of topics and tasks hold it shared; an operation that replaces them, such as a reset, exclusively. A
    waiting exclusive holder blocks new shared ones."""

    def __init__(self) -> None:
        self._exclusive = asyncio.Lock()
        self._holders = 0
        self._released = asyncio.Event()

    @asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        async with self._exclusive:
            self._holders += 1
        try:
            yield
        finally:
            self._holders -= 1
            if not self._holders:
                self._released.set()

    @asynccontextmanager
    async def exclusive(self) -> AsyncIterator[None]:
        async with self._exclusive:
            while self._holders:
                self._released.clear()
                await self._released.wait()
            yield
