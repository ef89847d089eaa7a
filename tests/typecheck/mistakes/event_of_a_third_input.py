"""The third of three topics holds what the handler does not take."""

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


views = app.topic("views", value_type=dict[str, str])


@app.process(clicks, counts, views)  # mistake: views are dicts
async def audit(ctx: Context, event: Click | Count) -> None:
    ctx.timers.cancel(event.user)
