"""Nothing reads what a handler yields."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec

from tidegate import App, Context


class Click(msgspec.Struct, frozen=True):
    user: str
    page: str


class Count(msgspec.Struct, frozen=True):
    user: str
    clicks: int


app = App("shop")
clicks = app.topic("clicks", value_type=Click, key="user")
counts = app.topic("counts", value_type=Count, key="user")


@app.process(clicks, to=counts)  # mistake: a result is emitted, not yielded
async def tally(ctx: Context, click: Click) -> AsyncIterator[Count]:
    yield Count(click.user, 1)
