"""A state of a class is set to what it does not hold."""

from __future__ import annotations

from typing import Annotated

import msgspec

from tidegate import App, Context, Default, ProcessFunction, ValueState


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
    seen: Annotated[ValueState[int], Default(0)]

    async def process(self, ctx: Context, click: Click) -> None:
        self.seen.value = click.page  # mistake: an int
