"""The messenger of an app's services: what it is made of is imported when the first message is sent."""

from __future__ import annotations

from collections.abc import Callable

from tidegate.functions.messages import ASK_SECONDS, AskResult, Messenger, OutgoingMessage, Posted
from tidegate.time.clock import Duration

__all__ = ("LateMessenger",)


class LateMessenger:
    """A Messenger in place of one that is made later."""

    def __init__(self, messenger: Callable[[], Messenger]) -> None:
        self._messenger = messenger

    async def tell(self, message: OutgoingMessage) -> Posted:
        return await self._messenger().tell(message)

    async def ask(self, message: OutgoingMessage, *, timeout: Duration = ASK_SECONDS) -> AskResult:
        return await self._messenger().ask(message, timeout=timeout)
