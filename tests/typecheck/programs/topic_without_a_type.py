"""A topic without a type takes its handler's."""

from __future__ import annotations

import msgspec

from tidegate import App, Context
from tidegate.testing import AppHarness


class Click(msgspec.Struct, frozen=True):
    user: str


app = App("shop")
clicks = app.topic("clicks")
users = app.topic("users", value_type=str)


@app.process(clicks, to=users)
async def names(ctx: Context, click: Click) -> None:
    ctx.emit(click.user, to=users)


@app.process(clicks, to=users, name="raw")
async def anything(ctx: Context, event: dict[str, str]) -> None:
    ctx.emit(event["user"])


def main() -> None:
    with AppHarness(app, services=[names]) as harness:
        harness.send(clicks, Click("ann"), key="ann")
        assert harness.outputs(users) == ["ann"]
