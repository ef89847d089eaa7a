"""A time to live has no such unit."""

from __future__ import annotations

from typing import Annotated

import msgspec

from tidegate import TTL, App, Context, Default, ValueState


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
async def tally(ctx: Context, click: Click, seen: Annotated[ValueState[int | None], Default(0)]) -> None:
    seen.value = 1


day = TTL(day=1)  # mistake: days=1
