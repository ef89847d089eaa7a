"""A value without a default is None until it is set."""

from __future__ import annotations

import msgspec

from tidegate import App, Context, ValueState
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
async def changes(ctx: Context, click: Click, last: ValueState[str | None]) -> None:
    if last.value is not None and last.value != click.page:
        ctx.emit(Count(click.user, len(last.value)), to=counts)
    last.value = click.page


def main() -> None:
    with AppHarness(app) as harness:
        harness.send_many(clicks, [Click("ann", "/"), Click("ann", "/tea")])
        assert harness.outputs(counts) == [Count("ann", 1)]
