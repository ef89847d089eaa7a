"""A method takes another event than its class says."""

from __future__ import annotations

import msgspec

from tidegate import App, Context, ProcessFunction


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
class Tally(ProcessFunction[Click, Count]):
    async def process(self, ctx: Context, count: Count) -> None:  # mistake: a click
        ctx.emit(count, to=counts)
