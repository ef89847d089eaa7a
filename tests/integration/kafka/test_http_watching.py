"""Changes of all keys through any worker, and a stream that ends when a part of it is lost."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.commands import Running
from tests.integration.kafka.projects import KafkaProject
from tidegate_app.kafka.configuration import free_port
from tidegate_app.kafka.plugin import SharedKafka

NAMES = [f"n{number}" for number in range(40)]
WATCH = "/v1/services/greeter/states/seen/watch"
PATIENCE = httpx.Timeout(60, connect=2)


class Workers:
    """Two, at addresses of their own."""

    def __init__(self, project: KafkaProject) -> None:
        self.project, self.ports = project, [free_port(), free_port()]
        self.running: list[Running] = [self.start(0), self.start(1)]

    def start(self, number: int) -> Running:
        return self.project.start(
            "worker", "hello.py", "--api", f"127.0.0.1:{self.ports[number]}", "--data", f"data-{number}",
            TIDEGATE_API_TIMEOUT="30",
        )  # fmt: skip

    def url(self, number: int, path: str) -> str:
        return f"http://127.0.0.1:{self.ports[number]}{path}"

    async def shared(self, client: httpx.AsyncClient) -> None:
        """Both have tasks of the service."""
        while True:
            try:
                found = (await client.get(self.url(0, "/v1/workers"))).json()["workers"]
            except (httpx.HTTPError, KeyError):
                found = []
            counts = [sum(task["service"] == "greeter" for task in one["tasks"]) for one in found if one["ready"]]
            if len(counts) == 2 and all(counts):
                return
            await asyncio.sleep(0.1)

    async def greet(self, client: httpx.AsyncClient, number: int) -> None:
        records = [{"value": {"name": name}} for name in NAMES]
        topic = self.project.topic("greetings")
        while True:
            key = {"idempotency-key": uuid.uuid4().hex}
            answer = await client.post(
                self.url(number, f"/v1/topics/{topic}/records"), json={"records": records}, headers=key
            )
            if answer.status_code == 200:
                return
            assert answer.status_code == 503, answer.text
            await asyncio.sleep(0.2)


async def events(client: httpx.AsyncClient, url: str, **params: str) -> AsyncIterator[tuple[str, Any]]:
    async with client.stream("GET", url, params=params) as answer:
        if answer.status_code != 200:
            await answer.aread()
            yield "refused", answer.status_code
            return
        kind = ""
        async for line in answer.aiter_lines():
            if line.startswith("event: "):
                kind = line.removeprefix("event: ")
            elif line.startswith("data: "):
                yield kind, json.loads(line.removeprefix("data: "))


async def ready(client: httpx.AsyncClient, url: str) -> AsyncIterator[tuple[str, Any]]:
    """A stream that is, however often it takes to connect."""
    while True:
        watching = events(client, url)
        kind, told = await anext(watching)
        if kind == "ready":
            return watching
        assert (kind, told) == ("refused", 503)
        await watching.aclose()  # type: ignore[attr-defined]
        await asyncio.sleep(0.2)


async def counts(watching: AsyncIterator[tuple[str, Any]], count: int) -> None:
    """Every name is reported with this count."""
    missing = set(NAMES)
    while missing:
        kind, told = await anext(watching)
        assert kind == "change", told
        if told["value"] == count:
            missing.discard(told["key"])
        assert told["value"] <= count


@pytest.fixture
def workers(tmp_path: Path, kafka: SharedKafka) -> Iterator[Workers]:
    project = KafkaProject(tmp_path, kafka.url)
    yield Workers(project)
    project.close()


@pytest.mark.timeout(400)
async def test_any_worker_streams_all_keys_until_a_worker_dies(workers: Workers) -> None:
    for running in workers.running:
        await asyncio.to_thread(running.wait_for, "recovered", 200)
    async with asyncio.timeout(360), httpx.AsyncClient(timeout=PATIENCE, trust_env=False) as client:
        await workers.shared(client)
        streams = [await ready(client, workers.url(number, WATCH)) for number in (0, 1)]
        one = events(client, workers.url(0, WATCH), prefix="n1")
        assert await anext(one) == ("ready", {})
        await workers.greet(client, 0)
        for watching in streams:
            await counts(watching, 1)
        assert {(await anext(one))[1]["key"] for _ in range(11)} == {name for name in NAMES if name.startswith("n1")}
        for name in NAMES[:10]:  # some at either worker
            async with aclosing(events(client, workers.url(0, WATCH), key=name)) as single:  # type: ignore[type-var]
                assert await anext(single) == ("value", {"key": name, "value": 1})

        workers.running[1].kill()
        kind, told = await anext(streams[0])
        assert (kind, "connect again" in told["reason"]) == ("end", True)
        with pytest.raises(StopAsyncIteration):
            await anext(streams[0])
        again = await ready(client, workers.url(0, WATCH))
        await workers.greet(client, 0)
        await counts(again, 2)

        workers.running[1] = workers.start(1)  # tasks move there: subscribers are notified
        while (await anext(again))[0] != "end":
            pass
        await workers.shared(client)
        third = await ready(client, workers.url(1, WATCH))
        await workers.greet(client, 1)
        await counts(third, 3)
        assert (await asyncio.to_thread(workers.running[1].stop)) == 0
