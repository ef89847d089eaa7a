"""A class with states, hooks and a timer."""

from __future__ import annotations

from typing import Annotated

import msgspec

from tidegate import App, Context, Default, ProcessFunction, TaskInfo, Timer, ValueState
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
class Tally(ProcessFunction[Click, Count]):
    seen: Annotated[ValueState[int], Default(0)]
    last: ValueState[str | None]

    def __init__(self, factor: int = 2) -> None:
        self.factor = factor

    async def open(self, task: TaskInfo) -> None:
        self.prefix = f"{task.app}/{task.number}"

    async def process(self, ctx: Context, click: Click) -> None:
        self.seen.value += self.factor
        self.last.value = self.prefix + click.page
        ctx.timers.after(60, name="flush")

    async def on_timer(self, ctx: Context, timer: Timer) -> None:
        if timer.name == "flush":
            ctx.emit(Count(str(ctx.key), self.seen.value), to=counts)


class Silent(ProcessFunction[Click, None]):
    def process(self, ctx: Context[str], event: Click) -> None:
        ctx.timers.cancel("flush")


silent = app.process(clicks, name="silent")(Silent())
other = app.process(clicks, name="other")(Silent)


def main() -> None:
    with AppHarness(app) as harness:
        harness.send(clicks, Click("ann", "/"))
        harness.finish()
        assert harness.outputs(counts) == [Count("ann", 2)]
