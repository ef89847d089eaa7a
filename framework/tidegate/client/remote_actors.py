"""An actor client for processes that do not run the app: web servers, scripts, other apps.

Messages go to the owner of an embedded log through its control socket, or directly to the broker; replies are read by
an observer of the log. The log is released after every append, so that a worker can start at any time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from tidegate.client.log_access import LogAccess
from tidegate.engine.topology.plan import Plan
from tidegate.errors import DataError, LogUnavailableError, OwnerLeftError, RefusedError, UsageError
from tidegate.functions.messages import ASK_SECONDS, AskResult, OutgoingMessage, Posted
from tidegate.host.actor_client import ActorClient
from tidegate.host.app_definition import AppDefinition
from tidegate.host.host import Host
from tidegate.logs.base import NewRecord, TopicPartition
from tidegate.logs.records import record_size
from tidegate.owner_rpc.protocol import AppendedRecord
from tidegate.time.clock import Duration, SystemClock

__all__ = ("AppMessenger", "connect_actors")

_OTHER_CODE: Final = "The worker runs a different version of the code: restart it."
_CLOSE_SECONDS: Final = 5.0
"""How long a disconnect waits for appends in progress."""
_BATCH_RECORDS: Final = 500
_BATCH_BYTES: Final = 512 << 10
"""The limits of one append."""
_RELEASE_SECONDS: Final = 0.1
"""How long the log stays released, so that another process can become its owner."""


@asynccontextmanager
async def connect_actors(definition: AppDefinition, flags: Mapping[str, Any]) -> AsyncIterator[ActorClient]:
    access = LogAccess(definition, flags)
    try:
        await access.create_topics()
        plan = await access.plan()
        await _check_topics(access, plan)
        if access.owns:
            await access.release()
        async with access.observed() as observer:
            assert observer is not None  # noqa: S101  the topics were just made
            sender = _Sender(access)
            actors = ActorClient(plan, SystemClock(), sender.send, observer)
            try:
                yield actors
            finally:
                await actors.close()
                await sender.close()
    finally:
        await access.release()


async def _check_topics(access: LogAccess, plan: Plan) -> None:
    """A worker creates topics when it starts; topics are missing if it was started with other code."""
    there = {topic.name for topic in await (await access.operations()).topics()}
    needed = [plan.replies, *(service.mailbox for service in plan.mailboxes.values())]
    missing = [topic.name for topic in needed if topic is not None and topic.name not in there]
    if missing:
        raise UsageError(f"there is no topic {missing[0]!r} yet. {_OTHER_CODE}")


@dataclass(frozen=True, kw_only=True)
class _PendingRecord:
    target: TopicPartition
    record: AppendedRecord
    size: int
    sent: asyncio.Future[int]


class _Sender:
    """Appends messages, and batches concurrent ones. An append runs to completion even if its callers were
    cancelled: an interrupted request would make the connection useless for the messages behind it."""

    def __init__(self, access: LogAccess) -> None:
        self._access = access
        self._waiting: deque[_PendingRecord] = deque()
        self._sending: asyncio.Task[None] | None = None

    async def send(self, target: TopicPartition, record: NewRecord) -> int:
        key, value, timestamp, headers = record
        appended = (target.partition, key, value, timestamp, list(headers))
        sent: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append(_PendingRecord(target=target, record=appended, size=record_size(record), sent=sent))
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send_all(), name="sending messages")
        return await sent

    async def close(self) -> None:
        """Wait briefly for the append in progress; messages that are not sent by then fail."""
        if self._sending is not None and not self._sending.done():
            await asyncio.wait((self._sending,), timeout=_CLOSE_SECONDS)
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)
        _fail(self._waiting, LogUnavailableError("disconnected before the message was sent"))

    async def _send_all(self) -> None:
        while self._waiting:
            batch = self._take()
            try:
                await self._send_together(batch)
            except Exception as error:
                _fail(batch, error)
            except BaseException:
                _fail(batch, LogUnavailableError("disconnected: whether the message was sent is not known"))
                raise

    def _take(self) -> list[_PendingRecord]:
        """The next batch: the first message, and the following messages to the same mailbox."""
        taken = [self._waiting.popleft()]
        topic, size = taken[0].target.topic, taken[0].size
        while self._waiting and self._waiting[0].target.topic == topic and len(taken) < _BATCH_RECORDS:
            size += self._waiting[0].size
            if size > _BATCH_BYTES:
                break
            taken.append(self._waiting.popleft())
        return [pending for pending in taken if not pending.sent.done()]  # the callers of the others were cancelled

    async def _send_together(self, batch: list[_PendingRecord]) -> None:
        if not batch:
            return
        try:
            positions = await self._append(batch[0].target.topic, [pending.record for pending in batch])
        except (DataError, RefusedError) as error:
            if len(batch) == 1 or getattr(error, "kind", "") == "UnknownTopicError":
                raise
            for pending in batch:  # one message fails the whole batch: append them one by one
                await self._send_alone(pending)
        else:
            for pending in batch:
                if not pending.sent.done():
                    pending.sent.set_result(positions[pending.target.partition])

    async def _send_alone(self, pending: _PendingRecord) -> None:
        try:
            await self._send_together([pending])
        except (DataError, RefusedError) as error:
            _fail([pending], error)

    async def _append(self, topic: str, records: list[AppendedRecord]) -> Mapping[int, int]:
        while True:
            try:
                positions = await (await self._access.operations()).append(topic, records)
            except OwnerLeftError:
                await self._access.release()  # the owner shut down in order: connect to the next one
                await asyncio.sleep(_RELEASE_SECONDS)
                continue
            except RefusedError as error:
                if error.kind != "UnknownTopicError":
                    raise
                raise UsageError(f"{error}. {_OTHER_CODE}") from error
            except BaseException:
                await self._access.release()
                raise
            if self._access.owns:
                await self._access.release()
                await asyncio.sleep(_RELEASE_SECONDS)
            return positions


def _fail(batch: Iterable[_PendingRecord], error: Exception) -> None:
    for pending in batch:
        if not pending.sent.done():
            pending.sent.set_exception(error)


class AppMessenger:
    """An app's Messenger: in its worker the worker's own actor client, elsewhere one that connects on demand."""

    def __init__(self, host: Callable[[], Host]) -> None:
        self._find_host = host
        self._connected: ActorClient | None = None

    @property
    def _host(self) -> Host:
        """The app's current host: the app may be given another one before it starts."""
        return self._find_host()

    async def tell(self, message: OutgoingMessage) -> Posted:
        async with self._actors() as actors:
            return await actors.tell(message)

    async def ask(self, message: OutgoingMessage, *, timeout: Duration = ASK_SECONDS) -> AskResult:
        async with self._actors() as actors:
            return await actors.ask(message, timeout=timeout)

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[None]:
        if self._host.running or self._connected is not None:
            yield
            return
        async with connect_actors(self._host.definition, self._host.flags) as actors:
            self._connected = actors
            try:
                yield
            finally:
                self._connected = None

    @asynccontextmanager
    async def _actors(self) -> AsyncIterator[ActorClient]:
        if self._host.running:
            yield self._host.actors
        elif self._connected is not None:
            yield self._connected
        else:
            async with connect_actors(self._host.definition, self._host.flags) as actors:
                yield actors
