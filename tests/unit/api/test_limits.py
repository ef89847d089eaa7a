"""Too much of anything is refused, clearly and cheaply, and nothing that a URL says becomes a path."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import tidegate_api.server as api_server
from tests.unit.api.support import served
from tidegate.errors import SettingsError
from tidegate.serving import parse_position
from tidegate_api.addresses import bind

SCAN = "/v1/services/greeter/states/seen/keys"
HOSTILE = [
    "/../../etc/passwd", "/assets/../server.py", "/assets/%2e%2e/server.py", "/assets/%2e%2e%2fserver.py",
    "/assets/..%5cserver.py", "/assets/%00", "/assets//etc/passwd", "/v1/services/%2e%2e/states/seen/keys/x",
    "/v1/services/greeter/states/%00/keys/x", "/v1/services/greeter/states/..%2f..%2f/keys/x", "/v1/topics/%2e%2e",
    "/v1/services/greeter%00/actors/x", "//etc/passwd", "/%ff%fe", "/v1/services/greeter/states/seen/keys/%ff",
]  # fmt: skip


async def raw(port: int | None, target: str, host: str = "localhost") -> tuple[int, bytes]:
    """A request as it is, that no client has tidied up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(f"GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode("latin-1"))
        await writer.drain()
        answer = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", answer)
        # Whoever is refused while still sending is listened to for a while: not to its end.
        answer += await reader.read() if length is None else await reader.readexactly(int(length[1]))
    finally:
        writer.close()
    return int(answer.split(b" ", 2)[1]), answer


async def test_hostile_paths_are_rejected(tmp_path: Path) -> None:
    async with served(tmp_path) as town:
        port = town.client.base_url.port
        assert port is not None
        for target in HOSTILE:
            status, answer = await raw(port, target)
            assert status in (404, 405, 422), (target, status)
            assert b"problem+json" in answer
            assert b"root:" not in answer
            assert b"import" not in answer


async def test_oversized_requests_are_refused(tmp_path: Path) -> None:
    async with served(tmp_path, api_max_bytes=20_000) as town:
        port = town.client.base_url.port
        assert port is not None
        status, answer = await raw(port, f"{SCAN}/{'k' * (10 << 20)}")
        assert (status, b"batch" in answer) == (414, True)
        big = {"keys": ["k" * 30_000]}
        assert (await town.client.post("/v1/services/greeter/states/seen/batch", json=big)).status_code == 413

        async def chunks() -> AsyncIterator[bytes]:
            for _ in range(30):
                yield b"x" * 1000

        sent = await town.client.post(
            "/v1/topics/visits/records",
            content=chunks(),
            headers={"content-type": "application/json"},
        )
        assert sent.status_code == 413
        many = {"keys": ["k"] * 1001}
        assert (await town.client.post("/v1/services/greeter/states/seen/batch", json=many)).status_code == 422
        await town.visited("ann", place="x" * 15_000)
        await town.visited("ann", place="y" * 15_000)
        whole = await town.get("/v1/services/greeter/states/log/keys/ann")
        assert (whole.status_code, whole.json()["type"]) == (422, "urn:tidegate:problem:value-too-large")
        page = (await town.get("/v1/services/greeter/states/log/keys")).json()
        assert page["items"] == [{"key": "ann", "value": None, "truncated": True}]


async def test_values_of_many_keys_have_room_together(tmp_path: Path) -> None:
    async with served(tmp_path, api_max_bytes=20_000) as town:
        await town.visited("ann", "bob", place="x" * 7_000)
        for body, state in ((["ann"] * 3, "log"), (["ann", "bob", "ann"], "log"), (["ann", "bob", "bob"], "brief")):
            batch = await town.client.post(f"/v1/services/greeter/states/{state}/batch", json={"keys": body})
            assert (batch.status_code, "fewer keys" in batch.json()["detail"]) == (422, True)
        actor = await town.get("/v1/services/greeter/actors/ann")  # five states hold the place
        assert (actor.status_code, "one by one" in actor.json()["detail"]) == (422, True)


async def test_a_malformed_request_is_refused(tmp_path: Path) -> None:
    async with served(tmp_path) as town:
        deep = "[" * 100_000 + "]" * 100_000
        batch, records = "/v1/services/greeter/states/seen/batch", "/v1/topics/visits/records"
        kind = {"content-type": "application/json"}
        for path, text in (
            (batch, '{"keys": ["\\ud800"]}'),
            (batch, f'{{"keys": [{deep}]}}'),
            (batch, deep),
            (batch, '{"keys": [NaN]}'),
            (records, deep),
            (records, f'{{"records": [{{"value": {deep}}}]}}'),
            (records, '{"records": [{"value": {"name": "\\ud800"}}]}'),
            ("/v1/services/greeter/ask", f'{{"key": "ann", "type": "Praise", "message": {deep}}}'),
            ("/v1/services/greeter/ask", '{"key": "\\ud800", "type": "Praise", "message": {}}'),
            ("/v1/services/sums/states/total/batch", f'{{"keys": [{"9" * 5000}]}}'),
        ):
            answer = await town.client.post(path, content=text, headers=kind)
            assert answer.status_code in (400, 422), (path, text[:60], answer.status_code, answer.text[:200])
            assert answer.headers["content-type"] == "application/problem+json"
        for path in (
            "/v1/services/greeter%2Factors/ann",
            "/v1/services/greeter/states%2Fseen/keys/ann",
            "/v1/services/sums/states/total/keys/" + "9" * 5000,
            "/v1/services/greeter/states/places/keys/ann?at=" + "%ff",
        ):
            answer = await town.get(path)
            assert answer.status_code in (404, 422), (path, answer.status_code)
            assert answer.headers["content-type"] == "application/problem+json"


async def test_a_key_that_ends_like_a_stream_has_the_limits_of_a_key(tmp_path: Path) -> None:
    async with served(tmp_path, api_concurrency=1, api_timeout=2) as town:
        token = parse_position(await town.visit("a/watch"))
        token.topics["visits"][next(iter(token.topics["visits"]))] += 1000
        slow = asyncio.create_task(town.get(f"{SCAN}/a/watch", params={"min_position": str(token)}))
        await asyncio.sleep(0.2)
        assert (await town.get(f"{SCAN}/a/watch")).status_code == 429
        assert (await slow).status_code == 503


async def test_unauthenticated_clients_get_little_memory_and_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_server, "HEAD_SECONDS", 0.5)
    monkeypatch.setattr(api_server, "MAX_CONNECTIONS", 20)
    async with served(tmp_path) as town, asyncio.timeout(60):
        port = town.client.base_url.port
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Long: " + b"x" * (1 << 20))
        assert b" 431 " in await reader.readline()
        await reader.read()  # it is listened to for a while, and then no more
        writer.close()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\n")
        assert await reader.read() == b""  # it never ended its head
        writer.close()
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(30)]
        assert await held[-1][0].read() == b""
        for _, one in held:
            one.close()
        await asyncio.sleep(0.6)
        for host in ("[", "[::1", "localhost:x", "\xff"):
            status, _ = await raw(port, "/v1/services", host)
            assert status in (200, 400, 421), (host, status)
        assert (await town.get("/livez")).status_code == 200


async def test_a_hundred_concurrent_unbounded_scans_get_a_page_or_429_without_blocking_the_loop(tmp_path: Path) -> None:
    async with served(tmp_path, store="rocksdb", api_scans=4) as town:
        for start in range(0, 5000, 1000):
            await town.visited(*(f"k{number:05d}" for number in range(start, start + 1000)))
        lags: list[float] = []

        async def measure() -> None:
            while True:
                before = time.perf_counter()
                await asyncio.sleep(0.001)
                lags.append(time.perf_counter() - before)

        measuring = asyncio.create_task(measure())
        answers = await asyncio.gather(*(town.get(SCAN, params={"limit": 100_000}) for _ in range(100)))
        measuring.cancel()
        counts = Counter(answer.status_code for answer in answers)
        assert counts.keys() == {200, 429}, counts
        assert all(len(answer.json()["items"]) == 1000 for answer in answers if answer.status_code == 200)
        assert all("retry-after" in answer.headers for answer in answers if answer.status_code == 429)
        assert max(lags) < 2, "no scan holds the loop, however busy the machine is"
        assert (await town.get(SCAN, params={"limit": 10})).status_code == 200


async def test_an_explicit_port_in_use_is_an_error_and_a_default_one_moves_on() -> None:
    with bind("127.0.0.1:0", explicit=True) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SettingsError, match="another process does"):
            bind(f"127.0.0.1:{port}", explicit=True)
        with bind(f"127.0.0.1:{port}", explicit=False) as other:
            assert other.getsockname()[1] > port
    with pytest.raises(SettingsError, match="cannot listen"):
        bind("no.such.host.invalid:80", explicit=True)
