"""A gate that many pass together, or one alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

__all__ = ("RWLock",)


class RWLock:
    """Held together by whoever uses topics and tasks, and alone by whoever replaces them."""

    def __init__(self) -> None:
        self._closed = asyncio.Lock()
        self._inside = 0
        self._empty = asyncio.Event()

    @asynccontextmanager
    async def together(self) -> AsyncIterator[None]:
        async with self._closed:
            self._inside += 1
        try:
            yield
        finally:
            self._inside -= 1
            if not self._inside:
                self._empty.set()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        async with self._closed:
            while self._inside:
                self._empty.clear()
                await self._empty.wait()
            yield
