"""Produces records to topics from outside of services: from timers, web views, agents."""

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

_BATCH_RECORDS: Final = 1000
_BATCH_BYTES: Final = 128 << 10
"""The limits of one append of single records. It must fit into one record batch, which is refused as a whole."""


@dataclass(frozen=True, kw_only=True)
class _PendingRecord:
    record: NewRecord
    sent: asyncio.Future[int]


class TopicProducer:
    """Owns two writers. Single records keep their order per partition; records that arrive during an append are
    batched into the next one. Records that belong together are appended in a transaction."""

    def __init__(self, log: Log, app: str) -> None:
        self._single = ReusableWriter(log)
        self._together = ReusableWriter(log, f"{app}.send.{uuid.uuid4().hex}")
        self._waiting: dict[TopicPartition, deque[_PendingRecord]] = {}
        """The partitions whose records have waited longest first."""
        self._sending: asyncio.Task[None] | None = None

    async def send(self, source: TopicPartition, record: NewRecord) -> int:
        """Returns a position after the record, once it is durable: the next one, unless others were batched with it."""
        sent: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(source, deque()).append(_PendingRecord(record=record, sent=sent))
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send_all(), name="sending from outside of services")
        return await sent

    async def send_together(self, records: Records) -> Positions:
        """Append all records or none. Returns per partition the position after the last record."""
        with _unknown_outcome("Either all of the records are in the log or none; which is not known"):
            return await self._together.append(records)

    async def close(self) -> None:
        """Records that are not durable yet fail."""
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)
        for batch in self._waiting.values():
            _fail(batch, LogUnavailableError("the app has stopped before the record was sent"))
        for writer in (self._single, self._together):
            await writer.close()

    async def _send_all(self) -> None:
        while self._waiting:
            source, batch = self._take()
            try:
                await self._send_some(source, batch)
            except Exception as error:
                _fail(batch, error)
            except BaseException:
                _fail(batch, LogUnavailableError("the app has stopped: whether the record was sent is not known"))
                raise

    def _take(self) -> tuple[TopicPartition, list[_PendingRecord]]:
        """The next batch: records of one partition, up to the limits."""
        source = next(iter(self._waiting))
        waiting, taken, size = self._waiting.pop(source), list[_PendingRecord](), 0
        while waiting and len(taken) < _BATCH_RECORDS and size <= _BATCH_BYTES:
            size += record_size(waiting[0].record)
            if not taken or size <= _BATCH_BYTES:
                taken.append(waiting.popleft())
        if waiting:
            self._waiting[source] = waiting
        return source, taken

    async def _send_some(self, source: TopicPartition, batch: list[_PendingRecord]) -> None:
        try:
            with _unknown_outcome("Whether the record is in the log is not known"):
                ends = await self._single.append({source: [pending.record for pending in batch]})
        except DataError as error:
            if len(batch) == 1:
                _fail(batch, error)
            else:  # one record fails the whole batch: append them one by one
                for pending in batch:
                    await self._send_some(source, [pending])
        else:
            for pending in batch:
                if not pending.sent.done():
                    pending.sent.set_result(ends[source])


@contextmanager
def _unknown_outcome(what: str) -> Iterator[None]:
    """Adds to an error what it means for the sent records."""
    try:
        yield
    except LogUnavailableError as error:
        raise LogUnavailableError(f"{error}. {what}: send it again only if duplicates are harmless.") from error


def _fail(batch: Iterable[_PendingRecord], error: Exception) -> None:
    for pending in batch:
        if not pending.sent.done():
            pending.sent.set_exception(error)
