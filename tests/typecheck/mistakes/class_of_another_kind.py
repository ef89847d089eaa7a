"""A class that is no ProcessFunction makes no service."""

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


@app.process(clicks)  # mistake: derive from ProcessFunction
class Tally:
    async def process(self, ctx: Context, click: Click) -> None:
        ctx.emit(Count(click.user, 1), to=counts)
