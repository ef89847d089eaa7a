"""A handler's parameters come in the wrong order."""

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


@app.process(clicks)  # mistake: the context comes first
async def tally(click: Click, ctx: Context) -> None:
    ctx.timers.after(60, name=click.page)
