"""A value with a default."""

from __future__ import annotations

from typing import Annotated

import msgspec

from tidegate import App, Context, Default, ValueState
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
async def tally(ctx: Context, click: Click, seen: Annotated[ValueState[int], Default(0)]) -> None:
    seen.value += 1
    ctx.emit(Count(click.user, seen.value), to=counts)


def main() -> None:
    with AppHarness(app) as harness:
        harness.send(clicks, Click("ann", "/"))
        assert harness.outputs(counts)[0].clicks == 1
        assert harness.state(tally, "seen", "ann") == 1
