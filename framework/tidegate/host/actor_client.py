"""Sends messages to actors from outside of handlers (tell), and waits for replies (ask).

An ask:
1. Find the end offset of this client's reply partition, unless the partition is being read already.
2. Append the message to the mailbox, with a correlation number and the reply partition as the address. With an
   idempotency key, repeat the append while the log is unavailable: the service handles the message once.
3. Read replies until the one with that number arrives. The transaction that handled the message has written it, and
   only committed records are read.
"""

from __future__ import annotations

import asyncio
import logging
import random
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Final, Protocol

from tidegate.engine.formats.actor_message import ReplyAddress, actor_headers, read_reply, reply_id
from tidegate.engine.topology.plan import Plan
from tidegate.errors import (
    ActorError,
    AskTimeoutError,
    LogUnavailableError,
    OffsetOutOfRangeError,
    OwnerLostError,
    UnknownMessageError,
    UnknownNameError,
)
from tidegate.functions.messages import (
    ASK_SECONDS,
    AskResult,
    MessageDefinition,
    OutgoingMessage,
    Posted,
    definition_for,
)
from tidegate.keys import encode_key
from tidegate.logs.base import LogRecord, NewRecord, Reader, TopicPartition
from tidegate.logs.records import check_headers
from tidegate.time.clock import Clock, Duration, to_duration, to_instant

__all__ = ("ActorClient", "compose")

logger = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 0.2
"""The pause before an unavailable log is tried again."""
_STOPPED: Final = "the app has stopped before the reply came"
_UNKNOWN_OUTCOME: Final = (LogUnavailableError, OwnerLostError)

Send = Callable[[TopicPartition, NewRecord], Awaitable[int]]
"""Appends one record; returns a position after it, when it is durable."""


class Readable(Protocol):
    """A log, or an observer of one."""

    async def end_offsets(self, sources: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]: ...
    def reader(self) -> Reader: ...


def compose(
    plan: Plan, outgoing: OutgoingMessage, now: int, address: ReplyAddress | None
) -> tuple[MessageDefinition, TopicPartition, NewRecord]:
    """The mailbox record of a message: its definition, its target partition, and the record."""
    when = now if outgoing.timestamp is None else to_instant(outgoing.timestamp)
    service, message, known = outgoing.service, outgoing.message, plan.mailboxes.get(outgoing.service)
    if known is None or known.mailbox is None:
        if service not in plan.services:
            raise UnknownNameError("service", service, plan.services)
        raise UnknownMessageError(service, type(message).__name__, ())
    mailbox, definition = known.mailbox, definition_for(service, known.messages, message)
    check_headers(outgoing.headers)
    raw, key_bytes = definition.codec.encode(message), encode_key(outgoing.key)
    named = (*actor_headers(definition.name, outgoing.idempotency_key, address), *outgoing.headers)
    return definition, TopicPartition(mailbox.name, mailbox.partition_for(key_bytes)), (key_bytes, raw, when, named)


class ActorClient:
    """A Messenger over one log, for one process."""

    def __init__(self, plan: Plan, clock: Clock, send: Send, log: Readable) -> None:
        self._plan, self._clock, self._send = plan, clock, send
        self._replies = _Replies(plan, log)

    async def close(self) -> None:
        """Pending asks fail."""
        await self._replies.close()

    async def tell(self, message: OutgoingMessage) -> Posted:
        _, target, record = compose(self._plan, message, self._clock.now(), None)
        return await self._post(target, record)

    async def ask(self, message: OutgoingMessage, *, timeout: Duration = ASK_SECONDS) -> AskResult:
        seconds = to_duration(timeout) / 1000
        limit = asyncio.timeout(seconds)
        try:
            async with limit, self._replies.expected() as (address, coming):
                definition, target, request = compose(self._plan, message, self._clock.now(), address)
                posted = await self._post_surely(target, request, again=message.idempotency_key is not None)
                record = await coming
        except TimeoutError:
            if not limit.expired():
                raise
            raise AskTimeoutError(message.service, seconds, message.idempotency_key) from None
        value = read_reply(message.service, definition, message.idempotency_key, record)
        if isinstance(value, ActorError):
            raise value
        return AskResult(value, posted)

    async def _post(self, target: TopicPartition, record: NewRecord) -> Posted:
        return Posted(target.topic, target.partition, await self._send(target, record))

    async def _post_surely(self, target: TopicPartition, record: NewRecord, *, again: bool) -> Posted:
        """With `again`, retry until the log is available: an idempotency key makes duplicates harmless."""
        while True:
            try:
                return await self._post(target, record)
            except _UNKNOWN_OUTCOME as error:
                if not again:
                    raise
                logger.info("sending a message again: %s", error)
                await asyncio.sleep(_RETRY_SECONDS)


class _Replies:
    """Reads the replies to one client. It reads only while asks are pending, from the end offset at their start."""

    def __init__(self, plan: Plan, log: Readable) -> None:
        self._topic, self._log = plan.replies, log
        self._asker = uuid.uuid4().hex[:16]
        self._number = 0
        self._waiting: dict[bytes, asyncio.Future[LogRecord]] = {}
        self._starting: asyncio.Task[None] | None = None
        self._reader: Reader | None = None
        self._reading: asyncio.Task[None] | None = None
        self._closed = False
        partitions = 1 if plan.replies is None else plan.replies.partitions
        name = "" if plan.replies is None else plan.replies.name
        self._source = TopicPartition(name, random.randrange(partitions))  # noqa: S311  to share the load

    @asynccontextmanager
    async def expected(self) -> AsyncIterator[tuple[ReplyAddress, asyncio.Future[LogRecord]]]:
        """An address for one reply, and the future of that reply."""
        coming: asyncio.Future[LogRecord] = asyncio.get_running_loop().create_future()
        await self._listen()
        self._number += 1  # no await since _listen: the reader stops only when no ask is pending
        address = ReplyAddress(self._source.partition, self._asker, self._number)
        self._waiting[address.id] = coming
        try:
            yield address, coming
        finally:
            del self._waiting[address.id]
            if not coming.cancel() and not coming.cancelled():
                coming.exception()  # retrieved, so that asyncio does not log it

    async def close(self) -> None:
        self._closed = True
        for task in (self._starting, self._reading):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        self._fail(LogUnavailableError(_STOPPED))
        if self._reader is not None:
            await self._reader.close()
            self._reader = None

    async def _listen(self) -> None:
        """Make sure that replies are read. The start is a task of its own: the ask that begins it may be cancelled
        while other asks wait for it."""
        while self._reading is None or self._reading.done():
            if self._closed:
                raise LogUnavailableError(_STOPPED)
            if self._starting is None or self._starting.done():
                self._starting = asyncio.create_task(self._start_reading())
                self._starting.add_done_callback(lambda task: task.cancelled() or task.exception())
            starting = self._starting
            await asyncio.wait((starting,))
            if not starting.cancelled():
                starting.result()

    async def _start_reading(self) -> None:
        if self._reader is None:
            self._reader = self._log.reader()
        self._reader.assign(await self._log.end_offsets([self._source]))
        self._reading = asyncio.create_task(self._read(self._reader), name="reading replies")

    async def _read(self, reader: Reader) -> None:
        """Read until no ask is pending."""
        try:
            while True:
                try:
                    batches = await reader.read(timeout=0.5)
                except LogUnavailableError:
                    await asyncio.sleep(_RETRY_SECONDS)
                    continue
                except OffsetOutOfRangeError:  # the topic was emptied
                    reader.assign(await self._log.end_offsets([self._source]))
                    continue
                for batch in batches:
                    for record in batch.records:
                        self._take(record)
                if not self._waiting:
                    return
        except Exception as error:
            self._fail(error)

    def _take(self, record: LogRecord) -> None:
        coming = self._waiting.get(reply_id(record) or b"")
        if coming is not None and not coming.done():
            coming.set_result(record)

    def _fail(self, error: Exception) -> None:
        for coming in self._waiting.values():
            if not coming.done():
                coming.set_exception(error)
