"""A service's key function takes other events than its topic holds."""

from __future__ import annotations

import msgspec

from tidegate import App, Context


class Click(msgspec.Struct, frozen=True):
    user: str
    page: str


class Count(msgspec.Struct, frozen=True):
    user: str
    clicks: int


app = App("shop")
clicks = app.topic("clicks", value_type=Click, key="user")
counts = app.topic("counts", value_type=Count, key="user")


def by_user(count: Count) -> str:
    return count.user


@app.process(clicks, key_by=by_user)  # mistake: by_user takes counts
async def tally(ctx: Context, click: Click) -> None:
    ctx.timers.cancel(click.page)
