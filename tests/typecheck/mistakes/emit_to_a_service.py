"""What is emitted goes to topics."""

from __future__ import annotations

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


@app.process(clicks)
async def tally(ctx: Context, click: Click) -> None:
    ctx.emit(click, to=tally_of)  # mistake: services are told


@app.process(clicks)
async def tally_of(ctx: Context, click: Click) -> None:
    ctx.timers.cancel(click.page)
