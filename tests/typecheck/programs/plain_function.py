"""A handler that awaits nothing may be a plain function."""

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
def tally(ctx: Context, click: Click, seen: Annotated[ValueState[int], Default(0)]) -> None:
    seen.value += 1
    ctx.timers.after(60, name="flush")


@tally.on_timer("flush")
def flush(ctx: Context, seen: Annotated[ValueState[int], Default(0)]) -> None:
    ctx.emit(Count(str(ctx.key), seen.value), to=counts)
    seen.clear()


def main() -> None:
    with AppHarness(app) as harness:
        harness.send(clicks, Click("ann", "/"))
        harness.finish()
        assert harness.outputs(counts) == [Count("ann", 1)]
