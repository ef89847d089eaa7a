"""A map is asked for a key that it cannot have."""

from __future__ import annotations

import msgspec

from tidegate import App, Context, MapState


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
async def tally(ctx: Context, click: Click, pages: MapState[str, int]) -> None:
    pages[len(click.page)] = 1  # mistake: keys are str
