"""What is sent to topics from outside of services: by timers, web views, agents."""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from tidegate.errors import DataError, LogUnavailableError
from tidegate.logs.base import Log, NewRecord, Records, TopicPartition
from tidegate.logs.records import record_size
from tidegate.logs.reusable_writer import ReusableWriter

__all__ = ("TopicProducer",)

Positions = Mapping[TopicPartition, int]

_MOST_RECORDS: Final = 1000
_MOST_BYTES: Final = 128 << 10
"""What may go together that was sent one by one. It must fit into one batch: then all of it is refused, or nothing."""


@dataclass(frozen=True, kw_only=True)
class _Letter:
    record: NewRecord
    sent: asyncio.Future[int]


class TopicProducer:
    """Two kept writers. Single records go in the order in which they were sent, for each partition; those that come
    while others are on their way go together after them. Many that belong together go in a transaction."""

    def __init__(self, log: Log, app: str) -> None:
        self._single = ReusableWriter(log)
        self._together = ReusableWriter(log, f"{app}.send.{uuid.uuid4().hex}")
        self._waiting: dict[TopicPartition, deque[_Letter]] = {}
        """Those that have waited longest first."""
        self._sending: asyncio.Task[None] | None = None

    async def send(self, source: TopicPartition, record: NewRecord) -> int:
        """Returns a position after it, when it is durable: the next one, unless others went with it."""
        sent: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(source, deque()).append(_Letter(record=record, sent=sent))
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send_all(), name="sending from outside of services")
        return await sent

    async def send_together(self, records: Records) -> Positions:
        """All of them or none. Returns per partition the position after the last one."""
        with _uncertain("They are in the log together, or not at all: which is not known"):
            return await self._together.append(records)

    async def close(self) -> None:
        """What was sent and is not durable yet fails."""
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)
        for letters in self._waiting.values():
            _fail(letters, LogUnavailableError("the app has stopped before this was sent"))
        for writer in (self._single, self._together):
            await writer.close()

    async def _send_all(self) -> None:
        while self._waiting:
            source, letters = self._take()
            try:
                await self._send_some(source, letters)
            except Exception as error:
                _fail(letters, error)
            except BaseException:
                _fail(letters, LogUnavailableError("the app has stopped: whether this was sent is not known"))
                raise

    def _take(self) -> tuple[TopicPartition, list[_Letter]]:
        """What goes next: as much of one partition as may go together."""
        source = next(iter(self._waiting))
        waiting, taken, size = self._waiting.pop(source), list[_Letter](), 0
        while waiting and len(taken) < _MOST_RECORDS and size <= _MOST_BYTES:
            size += record_size(waiting[0].record)
            if not taken or size <= _MOST_BYTES:
                taken.append(waiting.popleft())
        if waiting:
            self._waiting[source] = waiting
        return source, taken

    async def _send_some(self, source: TopicPartition, letters: list[_Letter]) -> None:
        try:
            with _uncertain("Whether what was sent is in the log is not known"):
                ends = await self._single.append({source: [letter.record for letter in letters]})
        except DataError as error:
            if len(letters) == 1:
                _fail(letters, error)
            else:  # all are refused because of one: the others need not know
                for letter in letters:
                    await self._send_some(source, [letter])
        else:
            for letter in letters:
                if not letter.sent.done():
                    letter.sent.set_result(ends[source])


@contextmanager
def _uncertain(what: str) -> Iterator[None]:
    """Say what an error means for whoever has sent something."""
    try:
        yield
    except LogUnavailableError as error:
        raise LogUnavailableError(f"{error}. {what}: send it again only if duplicates are harmless.") from error


def _fail(letters: Iterable[_Letter], error: Exception) -> None:
    for letter in letters:
        if not letter.sent.done():
            letter.sent.set_exception(error)
