"""Actors on a broker: any worker and any client process reaches the worker that owns the actor."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path
from typing import Annotated

import msgspec

from tidegate import App, Context, Default, ValueState
from tidegate_app.kafka.plugin import SharedKafka

KEYS = 12


class Add(msgspec.Struct, frozen=True):
    amount: int


class Who(msgspec.Struct, frozen=True):
    pass


def counting(name: str, broker: str, data: Path, worker: str) -> App:
    app = App(name, broker=broker, data=data, kafka_session_timeout=6.0, partitions=4)
    counter = app.actor("counter")

    @counter.on(Add, reply=int)
    async def add(ctx: Context, message: Add, count: Annotated[ValueState[int], Default(0)]) -> None:
        count.value += message.amount
        ctx.reply(count.value)

    @counter.on(Who, reply=str)
    async def who(ctx: Context, message: Who) -> None:
        ctx.reply(worker)

    return app


async def start(app: App) -> asyncio.Task[None]:
    await app.host.start()
    return asyncio.create_task(app.host.run())


async def stop(app: App, run: asyncio.Task[None]) -> None:
    run.cancel()
    await asyncio.gather(run, return_exceptions=True)
    await app.host.stop()


async def owners(app: App) -> set[str]:
    counter = app.services["counter"]
    return set(await asyncio.gather(*(counter.ask(f"k{n}", Who(), timeout=60) for n in range(KEYS))))


async def test_every_worker_and_every_client_reaches_every_actor(kafka: SharedKafka, tmp_path: Path) -> None:
    name = f"acting-{uuid.uuid4().hex[:8]}"
    one, two, client = (counting(name, kafka.url, tmp_path / who, who) for who in ("one", "two", "client"))
    running = {one: await start(one)}
    assert await owners(one) == {"one"}
    running[two] = await start(two)
    try:
        async with asyncio.timeout(60):
            while await owners(one) != {"one", "two"}:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        async with client.connected():
            for n in range(KEYS):
                counters = [app.services["counter"] for app in (one, two, client)]
                replies = [await counter.ask(f"k{n}", Add(1), timeout=60) for counter in counters]
                assert replies == [1, 2, 3]
            again = client.services["counter"]
            same = {await again.ask("k0", Add(1), timeout=60, idempotency_key="x") for _ in range(3)}
            assert same == {4}
            await stop(two, running.pop(two))
            assert await owners(client) == {"one"}
            assert await again.ask("k0", Add(1), timeout=60, idempotency_key="x") == 4
            assert await again.ask("k0", Add(1), timeout=60) == 5
    finally:
        for app, run in running.items():
            await stop(app, run)
