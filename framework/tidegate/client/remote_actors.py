"""Talking to an app's services from a process that does not run them: for web servers, scripts, other apps.

Messages go to whoever owns an embedded log, through its socket, or straight to the broker; replies are read beside
those who work with the log. Nothing is held for longer than it takes: a worker may start at any time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from tidegate.client.log_access import Access
from tidegate.engine.topology.plan import Plan
from tidegate.errors import DataError, LogUnavailableError, OwnerLeftError, RefusedError, UsageError
from tidegate.functions.messages import ASK_SECONDS, Answered, Outgoing, Posted
from tidegate.host.actor_client import ActorClient
from tidegate.host.app_definition import AppDefinition
from tidegate.host.host import Host
from tidegate.logs.base import NewRecord, TopicPartition
from tidegate.logs.records import record_size
from tidegate.owner_rpc.protocol import AppendedRecord
from tidegate.time.clock import Duration, SystemClock

__all__ = ("AppMessenger", "correspondence")

_OTHER_CODE: Final = "The worker runs other code than this: restart it."
_LAST: Final = 5.0
"""Seconds for what is under way when whoever is connected leaves."""
_MOST: Final = 500
_MOST_BYTES: Final = 512 << 10
"""How much goes together."""
_PAUSE: Final = 0.1
"""Seconds for whoever else wants to own the log."""


@asynccontextmanager
async def correspondence(definition: AppDefinition, flags: Mapping[str, Any]) -> AsyncIterator[ActorClient]:
    access = Access(definition, flags)
    try:
        await access.create_topics()
        plan = await access.plan()
        await _check_topics(access, plan)
        if access.owns:
            await access.release()
        async with access.observed() as observer:
            assert observer is not None  # noqa: S101  the topics were just made
            sender = _Sender(access)
            post = ActorClient(plan, SystemClock(), sender.send, observer)
            try:
                yield post
            finally:
                await post.close()
                await sender.close()
    finally:
        await access.release()


async def _check_topics(access: Access, plan: Plan) -> None:
    """A worker creates topics when it starts; one that was started with other code lacks some."""
    there = {topic.name for topic in await (await access.operations()).topics()}
    needed = [plan.replies, *(service.mailbox for service in plan.mailboxes.values())]
    missing = [topic.name for topic in needed if topic is not None and topic.name not in there]
    if missing:
        raise UsageError(f"there is no topic {missing[0]!r} yet. {_OTHER_CODE}")


@dataclass(frozen=True, kw_only=True)
class _Letter:
    target: TopicPartition
    record: AppendedRecord
    size: int
    sent: asyncio.Future[int]


class _Sender:
    """Appends what is sent, together what waits together. Once begun, an append goes on to its end, whether or not
    anybody still waits for it: a connection that is left in the middle of something is of no use to those behind."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._waiting: deque[_Letter] = deque()
        self._sending: asyncio.Task[None] | None = None

    async def send(self, target: TopicPartition, record: NewRecord) -> int:
        key, value, timestamp, headers = record
        appended = (target.partition, key, value, timestamp, list(headers))
        sent: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Letter(target=target, record=appended, size=record_size(record), sent=sent))
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send_all(), name="sending messages")
        return await sent

    async def close(self) -> None:
        """Wait a little for what is under way; what was not sent by then fails."""
        if self._sending is not None and not self._sending.done():
            await asyncio.wait((self._sending,), timeout=_LAST)
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)
        _fail(self._waiting, LogUnavailableError("disconnected before this was sent"))

    async def _send_all(self) -> None:
        while self._waiting:
            letters = self._take()
            try:
                await self._send_together(letters)
            except Exception as error:
                _fail(letters, error)
            except BaseException:
                _fail(letters, LogUnavailableError("disconnected: whether this was sent is not known"))
                raise

    def _take(self) -> list[_Letter]:
        """The first, and those behind it for the same mailbox."""
        taken = [self._waiting.popleft()]
        topic, size = taken[0].target.topic, taken[0].size
        while self._waiting and self._waiting[0].target.topic == topic and len(taken) < _MOST:
            size += self._waiting[0].size
            if size > _MOST_BYTES:
                break
            taken.append(self._waiting.popleft())
        return [letter for letter in taken if not letter.sent.done()]  # the others have given up waiting

    async def _send_together(self, letters: list[_Letter]) -> None:
        if not letters:
            return
        try:
            positions = await self._append(letters[0].target.topic, [letter.record for letter in letters])
        except (DataError, RefusedError) as error:
            if len(letters) == 1 or getattr(error, "kind", "") == "UnknownTopicError":
                raise
            for letter in letters:  # all are refused because of one: the others need not know
                await self._send_alone(letter)
        else:
            for letter in letters:
                if not letter.sent.done():
                    letter.sent.set_result(positions[letter.target.partition])

    async def _send_alone(self, letter: _Letter) -> None:
        try:
            await self._send_together([letter])
        except (DataError, RefusedError) as error:
            _fail([letter], error)

    async def _append(self, topic: str, records: list[AppendedRecord]) -> Mapping[int, int]:
        while True:
            try:
                positions = await (await self._access.operations()).append(topic, records)
            except OwnerLeftError:
                await self._access.release()  # it stopped in order: ask whoever owns the log now
                await asyncio.sleep(_PAUSE)
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
                await asyncio.sleep(_PAUSE)
            return positions


def _fail(letters: Iterable[_Letter], error: Exception) -> None:
    for letter in letters:
        if not letter.sent.done():
            letter.sent.set_exception(error)


class AppMessenger:
    """A Messenger of an app: in its worker the worker's own post, elsewhere one that is connected for the purpose."""

    def __init__(self, host: Callable[[], Host]) -> None:
        self._find_host = host
        self._connected: ActorClient | None = None

    @property
    def _host(self) -> Host:
        """Of the app as it is now: it may be given another one before it starts."""
        return self._find_host()

    async def tell(self, message: Outgoing) -> Posted:
        async with self._post() as post:
            return await post.tell(message)

    async def ask(self, message: Outgoing, *, timeout: Duration = ASK_SECONDS) -> Answered:
        async with self._post() as post:
            return await post.ask(message, timeout=timeout)

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[None]:
        if self._host.running or self._connected is not None:
            yield
            return
        async with correspondence(self._host.definition, self._host.flags) as post:
            self._connected = post
            try:
                yield
            finally:
                self._connected = None

    @asynccontextmanager
    async def _post(self) -> AsyncIterator[ActorClient]:
        if self._host.running:
            yield self._host.post
        elif self._connected is not None:
            yield self._connected
        else:
            async with correspondence(self._host.definition, self._host.flags) as post:
                yield post
