"""Outputs that leave at once: for services that ask for `at_least_once`.

They do not wait for the commit of the records that they come from. After a crash those records are handled again, and
their outputs are sent again. The order of what one task sends is kept: one append is on its way at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tidegate.engine.processing.output import Emissions
from tidegate.logs.base import TopicPartition, Writer

__all__ = ("AtLeastOnceSender",)


class AtLeastOnceSender:
    def __init__(self, writer: Writer, sent: dict[TopicPartition, int], wake: Callable[[], None]) -> None:
        self._writer, self._wake = writer, wake
        self._sent = sent
        """Per output partition, the position after the last record; shared with the commits, which tell of it."""
        self._waiting = Emissions()
        self._sending: asyncio.Task[None] | None = None
        self.failure: BaseException | None = None

    @property
    def backlog(self) -> int:
        return self._waiting.total

    def take(self, emitted: Emissions) -> None:
        """Send these, and forget them there."""
        self._waiting += emitted
        emitted.clear()
        if self._waiting and self.failure is None and (self._sending is None or self._sending.done()):
            self._sending = asyncio.ensure_future(self._send())

    async def _send(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, Emissions()
                self._sent.update(await self._writer.append(batch.by_target()))
        except Exception as error:
            self.failure = error  # the next commit raises it: a writer that has failed is not used again
        finally:
            self._wake()

    async def flushed(self) -> None:
        """Everything that was taken is durable; raises what went wrong."""
        if self._sending is not None:
            await self._sending
        if self.failure is not None:
            raise self.failure

    async def close(self) -> None:
        if self._sending is not None:
            await asyncio.gather(self._sending, return_exceptions=True)
        await self._writer.close()
