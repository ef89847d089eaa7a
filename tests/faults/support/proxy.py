"""A network between workers and a broker that a test can disturb: answers are lost, or nothing passes any more.

It understands as much of Kafka's protocol as that takes: frames, the kind of each request, and where a broker says its
own address, which is replaced by the proxy's, so that every connection goes through here.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Final

__all__ = ("END_TXN", "KINDS", "Proxy")

KINDS: Final = {
    "Produce": 0,
    "Fetch": 1,
    "ListOffsets": 2,
    "Metadata": 3,
    "OffsetCommit": 8,
    "FindCoordinator": 10,
    "JoinGroup": 11,
    "Heartbeat": 12,
    "LeaveGroup": 13,
    "SyncGroup": 14,
    "InitProducerId": 22,
    "AddPartitionsToTxn": 24,
    "EndTxn": 26,
}
"""Requests, by Kafka's own names."""
END_TXN: Final = KINDS["EndTxn"]
_LENGTH: Final = 4


class Proxy:
    """In a thread of its own, as long as it is entered."""

    def __init__(self, broker: str) -> None:
        """`broker`: kafka://HOST:PORT, with an address of four numbers."""
        self._host, _, port = broker.removeprefix("kafka://").rpartition(":")
        self._port, self._own_port = int(port), 0
        self.answered: Counter[int] = Counter()
        """By the kind of request, how many answers came from the broker;"""
        self.lost: Counter[int] = Counter()
        """and how many of them were never passed on."""
        self.asked: Counter[int] = Counter()
        """How many requests came from workers;"""
        self.dropped: Counter[int] = Counter()
        """and how many of them never reached the broker."""
        self._losing: dict[int, Callable[[int], bool]] = {}
        self._dropping: dict[int, Callable[[int], bool]] = {}
        self._held: frozenset[int] = frozenset()
        self._loop = asyncio.new_event_loop()
        self._passes = asyncio.Event()
        self._ready, self._over = threading.Event(), asyncio.Event()
        self._links: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._serve()), daemon=True)

    @property
    def url(self) -> str:
        return f"kafka://{self._host}:{self._own_port}"

    def __enter__(self) -> Proxy:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(10)
        self._loop.close()

    # -- disturbing --------------------------------------------------------------------------------------------------
    def lose(self, kind: int, when: Callable[[int], bool]) -> None:
        """Drop responses to this kind of request and break the connection if `when` returns True for their number
        so far, this one included. The broker has executed the request."""
        self._losing[kind] = when

    def drop(self, kind: int, when: Callable[[int], bool]) -> None:
        """Drop requests of this kind before the broker and break the connection if `when` returns True."""
        self._dropping[kind] = when

    def hold(self, *kinds: int) -> None:
        """Hold requests of these kinds; requests of other connections pass."""
        self._held = frozenset(kinds)

    def cut(self) -> None:
        """Stop forwarding; connections stay open."""
        self._loop.call_soon_threadsafe(self._passes.clear)

    def reconnect(self) -> None:
        """Forward again: requests and responses held since the cut arrive late."""
        self._loop.call_soon_threadsafe(self._passes.set)

    # -- passing on --------------------------------------------------------------------------------------------------
    async def _serve(self) -> None:
        self._passes.set()
        server = await asyncio.start_server(self._link, "127.0.0.1", 0)
        self._own_port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._over.wait()
        server.close()
        for link in list(self._links):
            link.cancel()
        await asyncio.gather(*self._links, return_exceptions=True)

    async def _link(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        mine = asyncio.current_task()
        assert mine is not None
        self._links.add(mine)
        writers = [writer]
        try:
            await self._passes.wait()
            answers, requests = await asyncio.open_connection(self._host, self._port)
            writers.append(requests)
            asked: deque[int] = deque()
            await _first(self._requests(reader, requests, asked), self._answers(answers, writer, asked))
        except (OSError, EOFError):
            pass
        finally:
            self._links.discard(mine)
            for each in writers:
                each.close()
            with contextlib.suppress(OSError):
                await asyncio.gather(*(each.wait_closed() for each in writers), return_exceptions=True)

    async def _requests(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, asked: deque[int]) -> None:
        while True:
            frame = await _frame(source)
            kind = int.from_bytes(frame[_LENGTH : _LENGTH + 2], "big")
            self.asked[kind] += 1
            if kind in self._dropping and self._dropping[kind](self.asked[kind]):
                self.dropped[kind] += 1
                return
            while kind in self._held:  # noqa: ASYNC110  it is held by another thread
                await asyncio.sleep(0.05)
            asked.append(kind)
            await self._passes.wait()
            target.write(frame)
            await target.drain()

    async def _answers(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, asked: deque[int]) -> None:
        """A broker answers the requests of a connection in their order."""
        while True:
            frame = await _frame(source)
            kind = asked.popleft()
            self.answered[kind] += 1
            await self._passes.wait()
            if kind in self._losing and self._losing[kind](self.answered[kind]):
                self.lost[kind] += 1
                return
            target.write(frame.replace(self._address(self._port), self._address(self._own_port)))
            await target.drain()

    def _address(self, port: int) -> bytes:
        return self._host.encode() + port.to_bytes(4, "big")


async def _frame(source: asyncio.StreamReader) -> bytes:
    length = await source.readexactly(_LENGTH)
    return length + await source.readexactly(int.from_bytes(length, "big"))


async def _first(*coroutines: Coroutine[None, None, None]) -> None:
    """Run these together, until one of them ends."""
    tasks = [asyncio.ensure_future(each) for each in coroutines]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
