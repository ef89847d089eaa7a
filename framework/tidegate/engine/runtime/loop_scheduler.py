"""Turns of the event loop: each piece of work that takes long gets one of its own.

asyncio runs everything that is ready before it looks at its sockets again. If a slice of handlers, the encoding of one
commit and the storing of another fell into the same turn, then whoever waits for an answer over HTTP, or for a
heartbeat, would wait for all three. And since a request is read in one turn and answered in the next, each of ours is
followed by one that is everybody else's: a request then waits for one piece of work, not for two.
"""

from __future__ import annotations

import asyncio
from collections import deque

__all__ = ("LoopScheduler",)


class LoopScheduler:
    """Gives out every second turn of the loop, in the order in which they are asked for."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._giving = False

    async def next(self) -> None:
        """Go on in a turn in which nobody else does who has asked here."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append(turn)
        if not self._giving:
            self._giving = True
            loop.call_soon(self._give, loop)
        await turn

    def _give(self, loop: asyncio.AbstractEventLoop) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():  # else whoever asked was cancelled
                turn.set_result(None)
                loop.call_soon(loop.call_soon, self._give, loop)  # behind the one that goes on now, and a turn later
                return
        self._giving = False
