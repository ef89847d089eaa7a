"""A reducing state is given what it does not combine."""

from __future__ import annotations

from typing import Annotated

import msgspec

from tidegate import App, Context, Reduce, ReducingState


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
async def tally(ctx: Context, click: Click, longest: Annotated[ReducingState[int], Reduce(max)]) -> None:
    longest.add(click.page)  # mistake: its length
