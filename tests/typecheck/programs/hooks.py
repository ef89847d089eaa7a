"""What runs before the first record of a task, and after its last."""

from __future__ import annotations

import msgspec

from tidegate import App, Context, TaskInfo
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

opened: list[int] = []


@app.process(clicks)
async def tally(ctx: Context, click: Click) -> None:
    opened.append(ctx.task.number)


@tally.on_open
async def prepare(task: TaskInfo) -> None:
    opened.append(task.number)


@tally.on_close
async def release(task: TaskInfo) -> None:
    opened.remove(task.number)


def main() -> None:
    with AppHarness(app) as harness:
        harness.send(clicks, Click("ann", "/"))
        assert opened == [0, 0]
