"""A topic whose values are of one of two types."""

from __future__ import annotations

import msgspec

from tidegate import App, Context, Topic
from tidegate.testing import AppHarness


class Opened(msgspec.Struct, frozen=True, tag=True):
    door: str


class Closed(msgspec.Struct, frozen=True, tag=True):
    door: str


app = App("doors")
doors = app.topic("doors", value_type=Opened | Closed, key=lambda event: event.door)
open_doors: Topic[str] = app.topic("open", value_type=str)


@app.process(doors, to=open_doors)
async def watch(ctx: Context, event: Opened | Closed) -> None:
    if isinstance(event, Opened):
        ctx.emit(event.door, to=open_doors)


def main() -> None:
    with AppHarness(app) as harness:
        harness.send_many(doors, [Opened("front"), Closed("front")])
        assert harness.outputs(open_doors) == ["front"]
