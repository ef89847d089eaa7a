"""Change streams: each committed change is sent once, with the key's value."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.api.support import SECONDS, Served, eventually, served


async def events(town: Served, state: str, **params: str) -> AsyncIterator[tuple[str, Any]]:
    path = f"/v1/services/greeter/states/{state}/watch"
    async with town.client.stream("GET", path, params=params) as answer:
        assert answer.status_code == 200
        kind = ""
        async for line in answer.aiter_lines():
            if line.startswith("event: "):
                kind = line.removeprefix("event: ")
            elif line.startswith("data: "):
                yield kind, json.loads(line.removeprefix("data: "))


async def test_a_watch_sends_a_keys_current_value_and_then_every_commit(tmp_path: Path) -> None:
    async with served(tmp_path) as town, asyncio.timeout(SECONDS):
        await town.visited("ann")
        watching = events(town, "seen", key="ann")
        assert await anext(watching) == ("value", {"key": "ann", "value": 1})
        for count in range(2, 6):
            await town.visited("bob", "ann")
            assert await anext(watching) == ("change", {"key": "ann", "value": count})
        await watching.aclose()  # type: ignore[attr-defined]


async def test_a_map_watch_lists_the_changed_entries(tmp_path: Path) -> None:
    async with served(tmp_path) as town, asyncio.timeout(SECONDS):
        await town.visited("ann")
        watching = events(town, "places", key="ann")
        assert await anext(watching) == ("value", {"key": "ann", "value": {"home": 1}})
        await town.visited("ann", place="sea")
        assert await anext(watching) == ("change", {"key": "ann", "entries": {"sea": 1}})
        await watching.aclose()  # type: ignore[attr-defined]


async def test_all_keys_with_a_prefix(tmp_path: Path) -> None:
    async with served(tmp_path) as town, asyncio.timeout(SECONDS):
        watching = events(town, "log", prefix="a")
        assert await anext(watching) == ("ready", {})
        await town.visited("bob", "ann")
        assert await anext(watching) == ("change", {"key": "ann", "value": ["home"]})
        await watching.aclose()  # type: ignore[attr-defined]


async def test_watchers_are_counted_and_end_when_the_worker_stops(tmp_path: Path) -> None:
    async with served(tmp_path, api_watchers=2) as town, asyncio.timeout(SECONDS):
        open_ = [events(town, "seen", key="ann") for _ in range(2)]
        for watching in open_:
            await anext(watching)
        path = "/v1/services/greeter/states/seen/watch"
        refused = await town.get(path, params={"key": "ann"})
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        await open_.pop().aclose()  # type: ignore[attr-defined]

        async def free() -> bool:
            async with town.client.stream("GET", path, params={"key": "ann"}) as answer:
                return answer.status_code == 200

        await eventually(free)
        town.server.stop_soon()
        kind, told = await anext(open_[0])
        assert (kind, told["reason"]) == ("end", "the worker is stopping; connect again")
        with pytest.raises(StopAsyncIteration):
            await anext(open_[0])
        assert (await town.get("/readyz")).status_code == 503


async def test_a_slow_subscriber_is_informed_of_missed_events(tmp_path: Path) -> None:
    async with served(tmp_path) as town, asyncio.timeout(SECONDS):
        await town.visited("ann")
        serving = town.server._serving
        state = serving.state("greeter", "seen")
        with serving.watch(state, range(4), key=None, prefix=b"", max_bytes=1000) as watcher:
            for number in range(3):
                await town.visited(*(f"{number}-{key}" for key in range(600)))
            told = [changed async for changed in watcher.changes(patience=1)]
        assert told[-1] is None
        assert len(told) <= 1001


async def test_an_oversized_value_is_reported_without_its_content(tmp_path: Path) -> None:
    async with served(tmp_path, api_max_bytes=20_000) as town, asyncio.timeout(SECONDS):
        watching = events(town, "log", key="ann")
        assert await anext(watching) == ("value", {"key": "ann", "value": None})
        await town.visited("ann", place="x" * 15_000)
        assert (await anext(watching))[1]["value"] == ["x" * 15_000]
        await town.visited("ann", place="y" * 15_000)
        large = {"key": "ann", "value": None, "truncated": True}
        assert await anext(watching) == ("change", large)
        await watching.aclose()  # type: ignore[attr-defined]
        again = events(town, "log", key="ann")
        assert await anext(again) == ("value", large)
        await again.aclose()  # type: ignore[attr-defined]


async def test_abandoned_streams_free_their_slots_and_requests_have_their_own(tmp_path: Path) -> None:
    async with served(tmp_path, api_watchers=5, api_concurrency=3) as town, asyncio.timeout(SECONDS):
        port = town.client.base_url.port
        for _ in range(50):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /v1/services/greeter/states/seen/watch HTTP/1.1\r\nHost: localhost\r\n\r\n")
            writer.close()
        slots = town.server._context.watchers

        async def all_free() -> bool:
            return slots._free == 5

        await eventually(all_free)
        open_ = [events(town, "seen") for _ in range(5)]
        for watching in open_:
            assert await anext(watching) == ("ready", {})
        assert (await town.get("/v1/services")).status_code == 200
        for watching in open_:
            await watching.aclose()  # type: ignore[attr-defined]


async def test_however_many_watch_a_key_its_value_is_written_once_for_each_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(tmp_path) as town, asyncio.timeout(SECONDS):
        watching = [events(town, "log", key="ann") for _ in range(5)] + [events(town, "log")]
        for one in watching:
            await anext(one)
        written: list[bytes] = []
        reader = town.server._serving.state("greeter", "log").reader
        value = reader.value

        def counted(view: Any, key: bytes, now: int, *, max_bytes: int) -> bytes | None:
            written.append(key)
            return value(view, key, now, max_bytes=max_bytes)

        monkeypatch.setattr(reader, "value", counted)
        for places in (["home"], ["home", "home"]):
            await town.visited("ann")
            for one in watching:
                assert await anext(one) == ("change", {"key": "ann", "value": places})
        assert written == [b"ann"] * 2
        for one in watching:
            await one.aclose()  # type: ignore[attr-defined]
