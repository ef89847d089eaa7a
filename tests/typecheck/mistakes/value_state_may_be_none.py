"""A state without a default is calculated with as if it were set."""

from __future__ import annotations

import msgspec

from tidegate import App, Context, ValueState


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
async def tally(ctx: Context, click: Click, seen: ValueState[int | None]) -> None:
    seen.value += 1  # mistake: None at first
