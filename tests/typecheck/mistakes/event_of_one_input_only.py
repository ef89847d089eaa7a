"""A service reads two topics, and its handler takes the events of one."""

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


@app.process(clicks, counts)  # mistake: counts come, too
async def audit(ctx: Context, click: Click) -> None:
    ctx.timers.cancel(click.page)
