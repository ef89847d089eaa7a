"""A service of five topics, of which the first four are checked; and one that takes everything."""

from __future__ import annotations

import msgspec

from tidegate import App, Context
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

numbers = app.topic("numbers", value_type=int)
words = app.topic("words", value_type=str)
flags = app.topic("flags", value_type=bool)
seen: list[object] = []


@app.process(clicks, counts, numbers, words)
async def four(ctx: Context, event: Click | Count | int | str) -> None:
    seen.append(event)


@app.process(clicks, counts, numbers, words, flags)
async def five(ctx: Context, event: Click | Count | int | str | bool) -> None:
    seen.append(event)


@app.process(clicks, counts)
async def everything(ctx: Context, event: object) -> None:
    seen.append(event)


def main() -> None:
    with AppHarness(app) as harness:
        harness.send(clicks, Click("ann", "/"))
        harness.send(flags, True, key="ann")
        assert len(seen) == 4
