"""A state is set to what it does not hold."""

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


@app.process(clicks)
async def tally(ctx: Context, click: Click, seen: Annotated[ValueState[int], Default(0)]) -> None:
    seen.value = click.page  # mistake: an int
