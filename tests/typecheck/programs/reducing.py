"""A state that combines what is added."""

from __future__ import annotations

from typing import Annotated

import msgspec

from tidegate import App, Context, Reduce, ReducingState
from tidegate.testing import AppHarness


class Click(msgspec.Struct, frozen=True):
    user: str
    page: str


class Count(msgspec.Struct, frozen=True):
    user: str
    clicks: int


app = App("shop")
clicks = app.topic("clicks", value_type=Click, key="user")
counts = app.topic("counts", value_type=Count, key="user")


@app.process(clicks, to=counts)
async def longest(ctx: Context, click: Click, length: Annotated[ReducingState[int], Reduce(max)]) -> None:
    length.add(len(click.page))
    if length.value is not None and length.value > 3:
        ctx.emit(Count(click.user, length.value), to=counts)


def main() -> None:
    with AppHarness(app) as harness:
        harness.send_many(clicks, [Click("ann", "/"), Click("ann", "/tea"), Click("ann", "/")])
        assert [count.clicks for count in harness.outputs(counts)] == [4, 4]
