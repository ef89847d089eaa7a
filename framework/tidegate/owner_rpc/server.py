"""The server of the owner RPC.

CLOSED ──start──▶ SERVING ──stop──▶ STOPPING ──pending requests are answered──▶ CLOSED
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import logging
from pathlib import Path
from typing import Final

import msgspec

from tidegate.engine.topology.run import FIRST
from tidegate.errors import OwnerError, TidegateError
from tidegate.owner_rpc.address import Address, bind, publish_address, remove_address
from tidegate.owner_rpc.operations import Owner
from tidegate.owner_rpc.protocol import (
    VERSION,
    Answer,
    Failure,
    Goodbye,
    Hello,
    Welcome,
    decode_request,
    encode,
    read_frame,
)

__all__ = ("ControlServer", "ServerState")

logger = logging.getLogger(__name__)

MAX_CONNECTIONS: Final = 64
STOP_SECONDS: Final = 30.0
"""How long a stop waits for requests under way."""
LINGER_SECONDS: Final = 2.0
"""How long a client has to read the Goodbye and close."""


class ServerState(enum.Enum):
    CLOSED = "closed"
    SERVING = "serving"
    STOPPING = "stopping"


class ControlServer:
    def __init__(self, app: str, owner: Owner, directory: Path, *, run: str = FIRST.id) -> None:
        self.state = ServerState.CLOSED
        self._app, self._owner, self._directory, self._run = app, owner, directory, run
        self._server: asyncio.Server | None = None
        self._address: Address | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()

    async def start(self) -> None:
        bound = bind(self._directory)
        self._server = await asyncio.start_unix_server(self._serve, sock=bound)
        self._address = publish_address(self._directory, bound)
        self.state = ServerState.SERVING

    async def stop(self) -> None:
        """Execute no new request, answer those under way, send Goodbye."""
        if self._server is None:
            return
        self.state = ServerState.STOPPING
        self._server.close()
        self._stopping.set()
        if self._connections:
            _, late = await asyncio.wait(self._connections, timeout=STOP_SECONDS)
            for connection in late:
                connection.cancel()
        remove_address(self._directory)
        self._server, self.state = None, ServerState.CLOSED

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  a coroutine runs in one
        self._connections.add(task)
        try:
            if len(self._connections) > MAX_CONNECTIONS:
                await _send(writer, Failure("OwnerError", f"too many connections: {MAX_CONNECTIONS} are open already"))
                return
            await self._handle_requests(reader, writer)
        except (ConnectionError, msgspec.MsgspecError, OwnerError) as error:
            logger.debug("a connection ended: %s", error)
        finally:
            self._connections.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _handle_requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (frame := await self._next(reader)) is not None:
            await _send(writer, await self._answer(frame))
        if self._stopping.is_set():
            await _send(writer, Goodbye())
            await _discard_until_closed(reader)

    async def _next(self, reader: asyncio.StreamReader) -> bytes | None:
        """The next request; None: the client has closed, or the server stops."""
        reading = asyncio.ensure_future(read_frame(reader))
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait((reading, stopping), return_when=asyncio.FIRST_COMPLETED)
            return reading.result() if reading.done() and not self._stopping.is_set() else None
        finally:
            for waiting in (reading, stopping):
                waiting.cancel()
            await asyncio.gather(reading, stopping, return_exceptions=True)

    async def _answer(self, frame: bytes) -> Answer:
        try:
            request = decode_request(frame)
            if isinstance(request, Hello):
                return self._welcome(request)
            return await self._owner.answer(request)
        except TidegateError as error:
            return Failure(type(error).__name__, str(error))
        except msgspec.MsgspecError as error:
            return Failure("OwnerError", f"the request cannot be read: {error}")
        except Exception as error:
            logger.exception("a request failed")
            return Failure(type(error).__name__, f"{type(error).__name__}: {error}")

    def _welcome(self, hello: Hello) -> Welcome | Failure:
        assert self._address is not None  # noqa: S101  it serves
        if hello.version != VERSION:
            return Failure(
                "OwnerError",
                f"{self._address} uses version {VERSION} of the owner protocol, this command version {hello.version}: "
                f"use the same version of Tidegate for both.",
            )
        address = self._address
        return Welcome(VERSION, self._app, address.pid, address.command, address.started, self._run)


async def _discard_until_closed(reader: asyncio.StreamReader) -> None:
    """Read and discard until the client has read the Goodbye and closes. If the server closed first, a write of the
    client could fail before it reads the Goodbye: it would not know that its request was not executed."""
    with contextlib.suppress(TimeoutError, ConnectionError):
        async with asyncio.timeout(LINGER_SECONDS):
            while await reader.read(1 << 16):
                pass


async def _send(writer: asyncio.StreamWriter, answer: Answer) -> None:
    try:
        raw = encode(answer)
    except OwnerError as error:
        raw = encode(Failure("OwnerError", str(error)))
    writer.write(raw)
    await writer.drain()
