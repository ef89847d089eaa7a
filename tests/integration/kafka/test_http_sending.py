"""Idempotent requests to several workers: each is carried out once, and they do not take the writer from each other."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.integration.commands import Running
from tests.integration.kafka.projects import KafkaProject
from tidegate_app.kafka.configuration import free_port
from tidegate_app.kafka.plugin import SharedKafka

REQUESTS = 120
TAKEN = "it is taken back"


@pytest.fixture
def project(tmp_path: Path, kafka: SharedKafka) -> Iterator[KafkaProject]:
    made = KafkaProject(tmp_path, kafka.url)
    yield made
    made.close()


def start(project: KafkaProject, port: int, number: int) -> Running:
    return project.start("worker", "hello.py", "--api", f"127.0.0.1:{port}", "--data", f"data-{number}")


@pytest.mark.timeout(400)
async def test_requests_to_any_worker_are_executed_once_by_one_worker(project: KafkaProject) -> None:
    ports = [free_port(), free_port()]
    running = [start(project, port, number) for number, port in enumerate(ports)]
    for one in running:
        await asyncio.to_thread(one.wait_for, "recovered", 200)
    topic = project.topic("greetings")
    async with asyncio.timeout(300), httpx.AsyncClient(timeout=httpx.Timeout(60, connect=2), trust_env=False) as client:

        async def send(number: int, port: int) -> bool:
            """Whether it was carried out before."""
            body = {"records": [{"value": {"name": "ann"}}]}
            headers = {"idempotency-key": f"request-{number}"}
            while True:
                answer = await client.post(
                    f"http://127.0.0.1:{port}/v1/topics/{topic}/records", json=body, headers=headers
                )
                if answer.status_code == 200:
                    return bool(answer.json()["again"])
                assert answer.status_code == 503, answer.text
                await asyncio.sleep(0.1)

        async def both(number: int) -> list[bool]:
            return await asyncio.gather(*(send(number, port) for port in ports))

        async def seen() -> int:
            answer = await client.get(f"http://127.0.0.1:{ports[0]}/v1/services/greeter/states/seen/keys/ann")
            return int(answer.json()["value"]) if answer.status_code == 200 else -1

        await asyncio.gather(*map(both, range(20)))  # by then all writers are open
        taken = sum(one.output.count(TAKEN) for one in running)
        began = time.perf_counter()
        for first in range(20, REQUESTS, 10):
            for once in await asyncio.gather(*map(both, range(first, first + 10))):
                assert sorted(once) == [False, True]
        took = time.perf_counter() - began
        sys.stdout.write(f"{2 * (REQUESTS - 20) / took:,.0f} requests per second\n")
        assert sum(one.output.count(TAKEN) for one in running) == taken

        running[1].kill()  # half of the keys were its business
        assert [await send(number, ports[0]) for number in range(20)] == [True] * 20
        assert [await send(number, ports[0]) for number in range(REQUESTS, REQUESTS + 20)] == [False] * 20
        while await seen() != REQUESTS + 20:  # noqa: ASYNC110  until its tasks are taken over
            await asyncio.sleep(0.2)
