"""Handlers that wait for a client that is shared."""

from __future__ import annotations

import asyncio
from typing import Annotated

import msgspec

from tidegate import App, Context, Default, ValueState
from tidegate.testing import AppHarness


class Click(msgspec.Struct, frozen=True):
    user: str
    page: str


class Count(msgspec.Struct, frozen=True):
    user: str
    clicks: int


app = App("shop")
clicks = app.topic("clicks", value_type=Click, key="user")
counts = app.topic("counts", value_type=Count, key="user")


class Client:
    async def title(self, page: str) -> str:
        await asyncio.sleep(0)
        return page.upper()


titles = app.topic("titles", value_type=str)
client = Client()


@app.process(clicks, to=titles, concurrency=100)
async def look_up(ctx: Context, click: Click, found: Annotated[ValueState[int], Default(0)]) -> None:
    title, again = await asyncio.gather(client.title(click.page), client.title(click.user))
    found.value += 1
    ctx.emit(title + again, to=titles)


def main() -> None:
    with AppHarness(app) as harness:
        harness.send(clicks, Click("ann", "/tea"))
        assert harness.outputs(titles) == ["/TEAANN"]
