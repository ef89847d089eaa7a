"""A state is emitted in the place of its value."""

from __future__ import annotations

from typing import Annotated

import msgspec

from tidegate import App, Context, Default, ValueState


class Click(msgspec.Struct, frozen=True):
    user: str
    page: str


class Count(msgspec.Struct, frozen=True):
    user: str
    clicks: int


app = App("shop")
clicks = app.topic("clicks", value_type=Click, key="user")
counts = app.topic("counts", value_type=Count, key="user")


numbers = app.topic("numbers", value_type=int)


@app.process(clicks, to=numbers)
async def tally(ctx: Context, click: Click, seen: Annotated[ValueState[int], Default(0)]) -> None:
    seen.value += 1
    ctx.emit(seen, to=numbers)  # mistake: seen.value
