"""Schedules long pieces of work in separate iterations (turns) of the event loop.

asyncio runs all ready callbacks before it polls its sockets again. If a slice of handlers, the encoding of one commit
and the storing of another ran in the same turn, an HTTP request or a heartbeat would wait for all three. A request is
read in one turn and answered in the next, so each turn of ours is followed by a free one: a request then waits for one
piece of work instead of two.
"""

from __future__ import annotations

import asyncio
from collections import deque

__all__ = ("LoopScheduler",)


class LoopScheduler:
    """Grants every second turn of the loop, first come, first served."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._granting = False

    async def next(self) -> None:
        """Continue in a turn that no other caller of this scheduler shares."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append(turn)
        if not self._granting:
            self._granting = True
            loop.call_soon(self._grant, loop)
        await turn

    def _grant(self, loop: asyncio.AbstractEventLoop) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():  # done: the caller was cancelled
                turn.set_result(None)
                loop.call_soon(loop.call_soon, self._grant, loop)  # after the caller continues, and one turn later
                return
        self._granting = False
