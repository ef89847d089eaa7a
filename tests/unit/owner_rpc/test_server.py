"""The owner RPC: requests and answers, refusals, limits, and orderly stops."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support import running
from tidegate import App, Context, ValueState
from tidegate.errors import (
    LogUnavailableError,
    NotReadyError,
    OwnerLeftError,
    OwnerLostError,
    OwnerSilentError,
    RefusedError,
)
from tidegate.owner_rpc import server as server_module
from tidegate.owner_rpc.address import bind, publish_address, read_address
from tidegate.owner_rpc.client import Connection, connect
from tidegate.owner_rpc.operations import Owner
from tidegate.owner_rpc.protocol import MAX_MESSAGE_BYTES, Append, Entries, Goodbye, Hello, Reset, Topics, encode
from tidegate.owner_rpc.server import ControlServer

app = App("counted")
words = app.topic("words", value_type=str, partitions=2)


@app.process(words)
async def counter(ctx: Context, word: str, count: ValueState[int | None]) -> None:
    count.value = (count.value or 0) + 1


@asynccontextmanager
async def connected(directory: Path) -> AsyncIterator[Connection]:
    connection = await connect(directory / "counted")
    assert connection is not None
    try:
        yield connection
    finally:
        await connection.close()


async def counts(connection: Connection) -> dict[bytes, bytes]:
    return {entry.key: entry.value for entry in (await connection.entries(Entries("counter", "count"))).page.entries}


async def until(found: Mapping[bytes, bytes], connection: Connection) -> None:
    async with asyncio.timeout(10):
        while await counts(connection) != found:  # noqa: ASYNC110  nothing tells when the worker has committed
            await asyncio.sleep(0.01)


async def test_records_are_appended_and_state_is_seen(tmp_path: Path) -> None:
    async with running(app, tmp_path), connected(tmp_path) as connection:
        positions = await connection.append("words", [(0, b"b", b'"x"', 1, []), (0, b"b", b'"y"', 2, [("h", b"1")])])

        assert positions == {0: 2}
        assert connection.app == "counted"
        await until({b"b": b"2"}, connection)
        (status,) = [topic for topic in await connection.topics() if topic.name == "words"]
        assert (status.partitions, status.ends) == (2, [3, 0])
        (service,) = await connection.services()
        assert ([task.lag for task in service.tasks], service.tasks[0].state) == ([0, 0], "running")


async def test_services_are_described_while_a_task_fails_and_is_reopened(tmp_path: Path) -> None:
    async with running(app, tmp_path) as host:
        telling = asyncio.create_task(Owner(host).services())
        await asyncio.sleep(0)
        task = host.tasks["counter.1"]
        task.invoker.failure = LogUnavailableError("it is away")
        assert host.engine._task_manager.reopen(task)

        (service,) = await telling

        assert [task.number for task in service.tasks] == [0, 1]


async def test_state_is_unavailable_while_a_task_is_reopened(tmp_path: Path) -> None:
    async with running(app, tmp_path) as host, connected(tmp_path) as connection:
        await connection.append("words", [(0, b"b", b'"x"', 1, []), (1, b"d", b'"x"', 1, [])])
        await until({b"b": b"1", b"d": b"1"}, connection)
        task = host.tasks["counter.1"]
        task.invoker.failure = LogUnavailableError("it is away")
        assert host.engine._task_manager.reopen(task)

        with pytest.raises(NotReadyError, match=r"counter\.1"):
            await Owner(host).entries(Entries("counter", "count"))

        await host.engine._task_manager.wait_until_open()
        await until({b"b": b"1", b"d": b"1"}, connection)


async def test_a_reset_forgets_and_begins_again(tmp_path: Path) -> None:
    async with running(app, tmp_path) as host, connected(tmp_path) as connection:
        await connection.append("words", [(0, b"b", b'"x"', 1, [])])
        await until({b"b": b"1"}, connection)

        done = await connection.reset(Reset())
        await until({b"b": b"1"}, connection)  # from the input, which is still there
        assert "words" not in done.emptied
        await connection.reset(Reset(everything=True))
        assert await counts(connection) == {}

        await connection.append("words", [(0, b"b", b'"x"', 1, [])])
        await until({b"b": b"1"}, connection)
        assert host.running


async def test_records_that_are_sent_during_a_reset_wait_for_it(tmp_path: Path) -> None:
    async with running(app, tmp_path) as host, connected(tmp_path) as one, connected(tmp_path) as other:

        async def send() -> None:
            for _ in range(20):
                await one.append("words", [(0, b"b", b'"x"', 1, [])])

        sending = asyncio.create_task(send())
        await other.reset(Reset())
        await sending
        await until({b"b": b"20"}, other)
        assert host.running


@pytest.mark.parametrize(
    ("request_", "kind", "message"),
    [
        (Append("nope", []), "UnknownTopicError", "no topic 'nope'"),
        (Append("words", [(7, b"k", b"1", 1, [])]), "UsageError", "has 2 partitions"),
        (Append("words", [(0, b"k", b"1" * (9 << 20), 1, [])]), "RecordTooLargeError", "over the limit"),
        (Entries("nope", "count"), "UnknownNameError", "no service 'nope'"),
        (Entries("counter", "nope"), "UnknownNameError", "'nope'"),
    ],
)
async def test_an_invalid_request_is_refused_and_the_connection_stays_open(
    tmp_path: Path, request_: Any, kind: str, message: str
) -> None:
    async with running(app, tmp_path), connected(tmp_path) as connection:
        with pytest.raises(RefusedError, match=message) as refused:
            await (
                connection.entries(request_)
                if isinstance(request_, Entries)
                else connection.append(request_.topic, request_.records)
            )

        assert refused.value.kind == kind
        assert await connection.topics()


async def raw_answer(directory: Path, data: bytes) -> Any:
    """What comes back for these bytes; None: the connection is closed."""
    address = read_address(directory / "counted")
    assert address is not None
    reader, writer = await asyncio.open_unix_connection(address.socket)
    try:
        writer.write(data)
        await writer.drain()
        (length,) = struct.unpack(">I", await reader.readexactly(4))
        return msgspec.msgpack.decode(await reader.readexactly(length))
    except asyncio.IncompleteReadError:
        return None
    finally:
        writer.close()


async def test_an_oversized_message_closes_only_its_connection(tmp_path: Path) -> None:
    async with running(app, tmp_path):
        assert await raw_answer(tmp_path, struct.pack(">I", MAX_MESSAGE_BYTES + 1) + b"x") is None
        assert (await raw_answer(tmp_path, encode(Hello(1))))["type"] == "welcome"


@pytest.mark.parametrize("body", [b"", b"\x93", b"\x80", b'{"type": "topics"}', b"cos\nsystem\n(S'true'\ntR."])
async def test_a_message_that_is_no_request_is_refused(tmp_path: Path, body: bytes) -> None:
    async with running(app, tmp_path):
        answer = await raw_answer(tmp_path, struct.pack(">I", len(body)) + body)

        assert (answer["type"], answer["kind"]) == ("failure", "OwnerError")


async def test_another_protocol_version_is_refused_with_advice(tmp_path: Path) -> None:
    async with running(app, tmp_path):
        answer = await raw_answer(tmp_path, encode(Hello(99)))

        assert "use the same version of Tidegate for both" in answer["message"]


async def test_too_many_connections_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "MAX_CONNECTIONS", 2)
    async with running(app, tmp_path), connected(tmp_path), connected(tmp_path):
        with pytest.raises(RefusedError, match="2 are open already"):
            await connect(tmp_path / "counted")


async def test_an_owner_that_stops_says_goodbye(tmp_path: Path) -> None:
    async with running(app, tmp_path):
        connection = await connect(tmp_path / "counted")
    assert connection is not None

    with pytest.raises(OwnerLeftError):
        await connection.topics()

    await connection.close()
    assert await connect(tmp_path / "counted") is None
    assert read_address(tmp_path / "counted") is None


async def test_a_request_after_the_goodbye_does_not_hide_it(tmp_path: Path) -> None:
    """A busy client writes before it looks. Were the socket closed by then, its write would fail, and it could not
    know that nothing was taken up. A plain socket: asyncio's reads ahead by itself."""
    control = ControlServer("counted", SlowOwner(), tmp_path)
    await control.start()
    address = read_address(tmp_path)
    assert address is not None
    with socket.socket(socket.AF_UNIX) as client:
        await asyncio.to_thread(client.connect, address.socket)
        await asyncio.to_thread(client.sendall, encode(Hello(1)))
        assert b"welcome" in await asyncio.to_thread(client.recv, 4096)
        stopping = asyncio.create_task(control.stop())
        await asyncio.sleep(0.2)  # by now it has said goodbye, and the client has not looked

        await asyncio.to_thread(client.sendall, encode(Topics()))

        assert await asyncio.to_thread(client.recv, 4096) == encode(Goodbye())
    async with asyncio.timeout(1):  # it leaves as soon as the client has closed
        await stopping


class SlowOwner(Owner):
    """Takes its time, and is asked to stop meanwhile."""

    def __init__(self) -> None:
        self.asked, self.go_on = asyncio.Event(), asyncio.Event()

    async def topics(self) -> list[Any]:
        self.asked.set()
        await self.go_on.wait()
        return []


async def test_an_accepted_request_is_answered_before_the_owner_stops(tmp_path: Path) -> None:
    owner = SlowOwner()
    control = ControlServer("counted", owner, tmp_path)
    await control.start()
    connection = await connect(tmp_path)
    assert connection is not None
    asking = asyncio.create_task(connection.topics())
    await owner.asked.wait()
    stopping = asyncio.create_task(control.stop())
    await asyncio.sleep(0)
    owner.go_on.set()

    assert await asking == []
    await stopping
    await connection.close()


async def test_an_owner_that_is_killed_in_between_leaves_the_outcome_open(tmp_path: Path) -> None:
    taken = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(4)
        taken.set()
        writer.close()

    with bind(tmp_path) as bound:
        server = await asyncio.start_unix_server(serve, sock=bound)
        address = publish_address(tmp_path, bound)
        reader, writer = await asyncio.open_unix_connection(address.socket)
        connection = Connection(address, reader, writer)

        with pytest.raises(OwnerLostError):
            await connection.topics()

        assert taken.is_set()
        await connection.close()
        server.close()


async def test_an_owner_that_hangs_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.owner_rpc.client.HELLO_SECONDS", 0.05)
    with bind(tmp_path) as bound:
        bound.listen()
        publish_address(tmp_path, bound)

        with pytest.raises(OwnerSilentError, match="has not answered"):
            await connect(tmp_path)


async def test_the_socket_of_a_killed_owner_is_not_an_owner(tmp_path: Path) -> None:
    with bind(tmp_path) as bound:
        publish_address(tmp_path, bound)

    assert await connect(tmp_path) is None
