"""The client of the owner RPC: a connection to the process that owns a log."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeVar

from tidegate.errors import OwnerError, OwnerLeftError, OwnerLostError, OwnerSilentError, RefusedError
from tidegate.owner_rpc.address import Address, read_address
from tidegate.owner_rpc.protocol import (
    VERSION,
    Answer,
    Append,
    Appended,
    AppendedRecord,
    CheckpointTaken,
    Entries,
    Failure,
    Goodbye,
    Hello,
    Items,
    OperatorItems,
    Request,
    Reset,
    ResetDone,
    Services,
    ServicesFound,
    ServiceStatus,
    StatePage,
    TakeCheckpoint,
    Timers,
    Topics,
    TopicsFound,
    TopicStatus,
    Welcome,
    decode_answer,
    encode,
    read_frame,
)

__all__ = ("Connection", "connect")

HELLO_SECONDS: Final = 5.0
GOODBYE: Final = encode(Goodbye())[4:]
"""The encoded body of Goodbye."""

A = TypeVar("A", bound=Answer)


async def connect(directory: Path) -> Connection | None:
    """A connection to the owner of the log in this directory; None: there is no reachable owner."""
    address = read_address(directory)
    if address is None:
        return None
    try:
        reader, writer = await asyncio.open_unix_connection(address.socket)
    except OSError:
        return None  # the owner was killed, or has just stopped
    connection = Connection(address, reader, writer)
    try:
        await connection.hello()
    except (OwnerLeftError, OwnerLostError):
        await connection.close()
        return None
    except BaseException:
        await connection.close()
        raise
    return connection


class Connection:
    """Operations that the owner executes. One request at a time."""

    def __init__(self, address: Address, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.address = address
        self.app = ""
        self.run = ""
        self._reader, self._writer = reader, writer
        self._lock = asyncio.Lock()
        self._incoming = self._receive()
        """The owner's next message: the answer to a request, or an unsolicited Goodbye."""

    async def hello(self) -> None:
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                welcome = await self._request(Hello(VERSION), Welcome)
        except TimeoutError:
            raise OwnerSilentError(str(self.address), HELLO_SECONDS) from None
        self.app, self.run = welcome.app, welcome.run

    async def close(self) -> None:
        self._incoming.cancel()
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()

    async def topics(self) -> list[TopicStatus]:
        return (await self._request(Topics(), TopicsFound)).topics

    async def append(self, topic: str, records: list[AppendedRecord]) -> Mapping[int, int]:
        return (await self._request(Append(topic, records), Appended)).positions

    async def services(self) -> list[ServiceStatus]:
        return (await self._request(Services(), ServicesFound)).services

    async def entries(self, request: Entries) -> StatePage:
        return await self._request(request, StatePage)

    async def timers(self, request: Timers) -> StatePage:
        return await self._request(request, StatePage)

    async def items(self, request: Items) -> OperatorItems:
        return await self._request(request, OperatorItems)

    async def reset(self, request: Reset) -> ResetDone:
        return await self._request(request, ResetDone)

    async def checkpoint(self, request: TakeCheckpoint) -> CheckpointTaken:
        return await self._request(request, CheckpointTaken)

    async def _request(self, request: Request, kind: type[A]) -> A:
        async with self._lock:
            answer = await self._exchange(encode(request))
        if isinstance(answer, kind):
            return answer
        if isinstance(answer, Goodbye):
            raise OwnerLeftError(str(self.address))
        if isinstance(answer, Failure):
            raise RefusedError(answer.kind, answer.message)
        raise OwnerError(f"{self.address} answered with an unexpected message: {type(answer).__name__}")

    async def _exchange(self, raw: bytes) -> Answer:
        if self._incoming.done():
            return Goodbye()  # the owner has stopped before this request
        with contextlib.suppress(ConnectionError):  # the read below then reports the end of the connection
            self._writer.write(raw)
            await self._writer.drain()
        frame = await self._incoming
        if frame is None:
            raise OwnerLostError(str(self.address))
        answer = decode_answer(frame)
        if not isinstance(answer, Goodbye):
            self._incoming = self._receive()
        return answer

    def _receive(self) -> asyncio.Future[bytes | None]:
        incoming = asyncio.ensure_future(read_frame(self._reader))
        incoming.add_done_callback(self._received)
        return incoming

    def _received(self, incoming: asyncio.Future[bytes | None]) -> None:
        """After its Goodbye, the owner waits until this side closes."""
        if not incoming.cancelled() and incoming.exception() is None and incoming.result() == GOODBYE:
            self._writer.close()
