"""Several outputs, by topic, by name and by default."""

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

pages = app.topic("pages", value_type=str)


@app.process(clicks, to={"tally": counts, "seen": pages})
async def split(ctx: Context, click: Click) -> None:
    ctx.emit(Count(click.user, 1))
    ctx.emit(click.page, to="seen", key=click.page, timestamp=ctx.timestamp + 1, headers=[("by", b"split")])
    for name, value in ctx.headers:
        if name == "again" and value and ctx.origin is not None:
            ctx.emit(Count(ctx.origin.topic, ctx.origin.offset), to="tally")


def main() -> None:
    with AppHarness(app) as harness:
        harness.send(clicks, Click("ann", "/"), headers=[("again", b"1")])
        assert harness.outputs(counts) == [Count("ann", 1), Count("clicks", 0)]
        assert harness.outputs("pages") == ["/"]
