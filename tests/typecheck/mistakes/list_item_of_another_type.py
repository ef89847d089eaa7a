"""A list is given what it does not hold."""

from __future__ import annotations

import msgspec

from tidegate import App, Context, ListState


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
async def tally(ctx: Context, click: Click, recent: ListState[str]) -> None:
    recent.append(click)  # mistake: click.page
