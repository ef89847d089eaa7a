"""Sends outputs before the commit, for services with `at_least_once`.

After a crash, records since the last commit are handled again, and their outputs are sent again. A task has one append
in flight at a time, so its outputs keep their order.
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
        """Per output partition, the position after the last record; shared with the committer, which publishes it."""
        self._waiting = Emissions()
        self._sending: asyncio.Task[None] | None = None
        self.failure: BaseException | None = None

    @property
    def backlog(self) -> int:
        return self._waiting.total

    def take(self, emitted: Emissions) -> None:
        """Send these records, and clear the list."""
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
        """Wait until all records that were taken are durable. Raises the error of a failed append."""
        if self._sending is not None:
            await self._sending
        if self.failure is not None:
            raise self.failure

    async def close(self) -> None:
        if self._sending is not None:
            await asyncio.gather(self._sending, return_exceptions=True)
        await self._writer.close()
