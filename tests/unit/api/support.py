"""An app that is served over real HTTP, from a worker in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import httpx
import msgspec

from tests.support import Mean
from tidegate import (
    DEAD_LETTER,
    TTL,
    Aggregate,
    AggregatingState,
    App,
    Context,
    Default,
    ListState,
    MapState,
    OperatorState,
    Queryable,
    ValueState,
)
from tidegate.errors import RejectedError
from tidegate_api.server import ApiServer, listen

SECONDS = 60.0


class Visit(msgspec.Struct):
    name: str
    place: str = "home"
    note: str | None = None


class Profile(msgspec.Struct):
    visits: int
    last: str


class Praise(msgspec.Struct):
    """A message: who is praised has one more visit, unless it is too much."""

    times: int = 1


class HowOften(msgspec.Struct):
    """A question."""


def make_app(**options: Any) -> App:
    """Visits are counted by name; sums are kept by whole numbers; `numbers` passes on what it reads."""
    app = App("town", partitions=4, **options)
    visits = app.topic("visits", value_type=Visit, key="name")
    numbers = app.topic("numbers", value_type=int, key=lambda number: number % 10, key_type=int)
    greetings = app.topic("greetings", value_type=str)

    @app.process(visits, to=greetings, errors=DEAD_LETTER)
    async def greeter(
        ctx: Context,
        visit: Visit,
        seen: Annotated[ValueState[int], Default(0)],
        profile: ValueState[Profile | None],
        places: MapState[str, int],
        log: ListState[str],
        secret: Annotated[ValueState[str | None], Queryable(False)],
        brief: Annotated[ValueState[str | None], TTL(days=1)],
        mean: Annotated[AggregatingState[float, float], Aggregate(Mean())],
        task: OperatorState[str],
    ) -> None:
        """Greets visitors."""
        if visit.place == "nowhere":
            raise ValueError("there is no such place")
        seen.value += 1
        profile.value = Profile(seen.value, visit.place)
        places[visit.place] = places.get(visit.place, 0) + 1
        log.append(visit.place)
        secret.value = "hidden"
        brief.value = visit.place
        mean.add(float(len(visit.place)))
        ctx.timers.after(3600, name="bye", time="processing")
        ctx.emit(f"Hello {visit.name}, visit {seen.value}")

    @greeter.on_timer("bye")
    async def bye(ctx: Context, seen: Annotated[ValueState[int], Default(0)]) -> None:
        seen.clear()

    @greeter.on(Praise, reply=int)
    async def praised(ctx: Context, praise: Praise, seen: Annotated[ValueState[int], Default(0)]) -> None:
        if praise.times > 10:
            raise RejectedError("that is too much")
        if praise.times < 0:
            raise ValueError("that is too little")
        seen.value += praise.times
        ctx.reply(seen.value)

    @greeter.on(HowOften, reply=int)
    async def how_often(ctx: Context, question: HowOften, seen: Annotated[ValueState[int], Default(0)]) -> None:
        ctx.reply(seen.value)

    @app.process(numbers)
    async def sums(ctx: Context, number: int, total: Annotated[ValueState[int], Default(0)]) -> None:
        total.value += number

    @app.process(visits, key_by="place", name="by_place")
    async def by_place(ctx: Context, visit: Visit, visitors: Annotated[ValueState[int], Default(0)]) -> None:
        visitors.value += 1

    return app


class Served:
    """A worker that runs, and a client."""

    def __init__(self, app: App, server: ApiServer, client: httpx.AsyncClient) -> None:
        self.app, self.server, self.client = app, server, client

    async def get(self, path: str, **options: Any) -> httpx.Response:
        return await self.client.get(path, **options)

    async def visit(self, *names: str, place: str = "home") -> str:
        """Send a visit of each; returns the position to wait for."""
        records = [{"value": {"name": name, "place": place}} for name in names]
        answer = await self.client.post("/v1/topics/visits/records", json={"records": records})
        assert answer.status_code == 200, answer.text
        return str(answer.json()["position"])

    async def visited(self, *names: str, place: str = "home") -> None:
        """And wait until all of it is committed."""
        token = await self.visit(*names, place=place)
        answer = await self.get("/v1/services/greeter/states/seen/keys", params={"min_position": token, "limit": 1})
        assert answer.status_code == 200, answer.text


@asynccontextmanager
async def served(
    directory: Path, app: App | None = None, *, token: str = "", start: bool = True, **flags: Any
) -> AsyncIterator[Served]:
    app = app or make_app()
    app.host.flags = {"data": directory, "api": "127.0.0.1:0", "commit_interval": 0.02, "store": "memory", **flags}
    settings = app.define().resolve(app.host.flags).settings
    server = ApiServer(app, settings, listen(settings, explicit=True))
    await server.start()
    headers = {"authorization": f"Bearer {token}"} if token else {}
    running: asyncio.Task[None] | None = None
    try:
        if start:
            await app.host.start()
            running = asyncio.create_task(app.host.run())
        async with httpx.AsyncClient(base_url=server.url, headers=headers, timeout=SECONDS, trust_env=False) as client:
            yield Served(app, server, client)
    finally:
        await server.stop()
        if running is not None:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        await app.host.stop()


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(SECONDS):
        while not await condition():  # noqa: ASYNC110  there is no event to wait for
            await asyncio.sleep(0.02)
