"""What HTTP answers while workers are killed: every 200 is a committed prefix, and `min_position` is honoured.

Writers send numbers 1, 2, 3, ... to keys of their own, each under an idempotency key and again until it is
acknowledged. The service keeps them in a list. So whatever any worker answers for a key must be 1, 2, 3, ... up to
somewhere: a number twice, one left out, or one that nobody has sent yet is a wrong answer.
"""

from __future__ import annotations

import asyncio
import random
import sys
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from tests.integration.commands import Project, Running
from tidegate_app.kafka.configuration import free_port
from tidegate_app.kafka.plugin import SharedKafka

APP = """
import msgspec
from tidegate import App, Context, ListState

app = App("{app}", partitions=4, commit_interval=0.05)

class Event(msgspec.Struct):
    key: str
    number: int

events = app.topic("{app}-events", value_type=Event, key="key")

@app.process(events)
async def recorder(ctx: Context, event: Event, numbers: ListState[int]) -> None:
    numbers.append(event.number)
"""
WORKERS = 3
KEYS = [f"key-{number}" for number in range(6)]
SECONDS = 120.0
ENOUGH = 200
"""Answers for each kill, at least."""
PATIENCE = httpx.Timeout(20, connect=2)


@dataclass
class World:
    """The workers, what was sent, and what was answered."""

    project: Project
    broker: str
    topic: str
    chance: random.Random
    ports: list[int] = field(default_factory=lambda: [free_port() for _ in range(WORKERS)])
    running: dict[int, Running] = field(default_factory=dict)
    tried: Counter[str] = field(default_factory=Counter)
    """By key, the greatest number that was ever sent."""
    tokens: dict[str, tuple[int, str]] = field(default_factory=dict)
    """By key, the greatest number that was acknowledged, and its position."""
    answers: Counter[str] = field(default_factory=Counter)
    kills: int = 0
    over: bool = False

    def start(self, number: int) -> None:
        self.running[number] = self.project.start(
            "worker", "recorder.py", "--api", f"127.0.0.1:{self.ports[number]}", "--data", f"data-{number}",
            TIDEGATE_BROKER=self.broker, TIDEGATE_KAFKA_SESSION_TIMEOUT="6",
        )  # fmt: skip

    def url(self, number: int, path: str) -> str:
        return f"http://127.0.0.1:{self.ports[number]}{path}"

    def path(self, key: str = "") -> str:
        return f"/v1/services/recorder/states/numbers/keys{'/' if key else ''}{key}"

    # -- requests ----------------------------------------------------------------------------------------------------
    async def send(self, client: httpx.AsyncClient, key: str, number: int) -> str:
        """Until a worker acknowledges it."""
        self.tried[key] = number
        body = {"records": [{"value": {"key": key, "number": number}}]}
        headers = {"idempotency-key": f"{key}-{number}"}
        while True:
            url = self.url(self.chance.randrange(WORKERS), f"/v1/topics/{self.topic}/records")
            answer = await self._ask(client.post(url, json=body, headers=headers))
            if answer is not None:
                return str(answer.json()["position"])
            await asyncio.sleep(0.1)

    async def read(self, client: httpx.AsyncClient, worker: int, key: str, token: str = "") -> list[int] | None:
        """None: no worker could answer."""
        params = {"min_position": token} if token else {}
        answer = await self._ask(client.get(self.url(worker, self.path(key)), params=params))
        if answer is None:
            return None
        numbers: list[int] = [] if answer.status_code == 404 else answer.json()["value"]
        self.check(key, numbers)
        return numbers

    async def scan(self, client: httpx.AsyncClient, worker: int) -> None:
        answer = await self._ask(client.get(self.url(worker, self.path())))
        if answer is not None:
            items = answer.json()["items"]
            assert [item["key"] for item in items] == sorted(item["key"] for item in items)
            for item in items:
                self.check(item["key"], item["value"])

    async def _ask(self, asking: object) -> httpx.Response | None:
        try:
            answer: httpx.Response = await asking  # type: ignore[misc]
        except httpx.HTTPError as error:
            self.answers[type(error).__name__] += 1
            return None
        self.answers[str(answer.status_code)] += 1
        assert answer.status_code in (200, 404, 429, 503), answer.text
        if answer.status_code == 503:
            assert "retry-after" in answer.headers
        return answer if answer.status_code in (200, 404) else None

    def check(self, key: str, numbers: list[int]) -> None:
        assert numbers == list(range(1, len(numbers) + 1)), f"{key}: not a prefix: {numbers}"
        assert len(numbers) <= self.tried[key], f"{key}: nobody has sent {numbers[-1]} yet"


@pytest.fixture
def world(tmp_path: Path, kafka: SharedKafka) -> Iterator[World]:
    seed = random.SystemRandom().randrange(1 << 32)
    sys.stdout.write(f"seed {seed}\n")
    app = f"recorder-{uuid.uuid4().hex[:8]}"
    project = Project(tmp_path, recorder=APP.format(app=app))
    yield World(project, kafka.url, f"{app}-events", random.Random(seed))
    project.close()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kills", [1, pytest.param(8, marks=pytest.mark.slow)])
async def test_every_response_is_a_committed_prefix_despite_kills(world: World, kills: int) -> None:
    for number in range(WORKERS):
        world.start(number)
    for number in range(WORKERS):
        await asyncio.to_thread(world.running[number].wait_for, "recovered", 200)
    limits = httpx.Limits(max_connections=100)
    async with httpx.AsyncClient(timeout=PATIENCE, trust_env=False, limits=limits) as client:
        async with asyncio.TaskGroup() as group:
            for key in KEYS:
                group.create_task(_write(world, client, key))
            for number in range(WORKERS):
                group.create_task(_look(world, client, number))
            group.create_task(_kill(world, kills))
        for number in range(WORKERS):
            for key, (last, token) in world.tokens.items():
                assert await _until_read(world, client, number, key, token) == list(range(1, last + 1))
    writes = sum(last for last, _ in world.tokens.values())
    sys.stdout.write(f"{writes} writes, {world.kills} kills, answers {dict(world.answers)}\n")
    assert world.kills == kills
    assert world.answers["200"] > ENOUGH * kills
    assert sum(count for name, count in world.answers.items() if name not in ("200", "404")) > 0  # it was felt


async def _write(world: World, client: httpx.AsyncClient, key: str) -> None:
    number = 0
    while not world.over:
        number += 1
        token = await world.send(client, key, number)
        world.tokens[key] = (number, token)
        numbers = await world.read(client, world.chance.randrange(WORKERS), key, token)
        assert numbers is None or len(numbers) >= number, f"{key}: {number} was written, and {numbers} read"
        await asyncio.sleep(0.02)


async def _look(world: World, client: httpx.AsyncClient, worker: int) -> None:
    while not world.over:
        await world.read(client, worker, world.chance.choice(KEYS))
        if world.chance.random() < 0.1:
            await world.scan(client, worker)
        await asyncio.sleep(0.03)


async def _kill(world: World, kills: int) -> None:
    for _ in range(kills):
        await asyncio.sleep(world.chance.uniform(2, 4))
        number = world.chance.randrange(WORKERS)
        world.running[number].kill()
        world.kills += 1
        world.start(number)
        await asyncio.to_thread(world.running[number].wait_for, "recovered", 200)
        while world.answers["200"] <= ENOUGH * world.kills:  # noqa: ASYNC110  however slow the machine is
            await asyncio.sleep(0.1)
    await asyncio.sleep(3)
    world.over = True


async def _until_read(world: World, client: httpx.AsyncClient, worker: int, key: str, token: str) -> list[int]:
    async with asyncio.timeout(SECONDS):
        while (numbers := await world.read(client, worker, key, token)) is None:  # noqa: ASYNC110  no event to wait for
            await asyncio.sleep(0.2)
        return numbers
