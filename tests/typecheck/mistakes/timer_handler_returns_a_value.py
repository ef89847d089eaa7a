"""What a timer's handler returns is lost."""

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


@app.process(clicks, to=counts)
async def tally(ctx: Context, click: Click) -> None:
    ctx.timers.after(60, name="flush")


@tally.on_timer("flush")  # mistake: a result is emitted, not returned
async def flush(ctx: Context) -> Count:
    return Count("ann", 1)
