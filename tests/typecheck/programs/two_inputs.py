"""A service of two topics takes the union of their events."""

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

audits = app.topic("audits", value_type=str)


@app.process(clicks, counts, to=audits)
async def audit(ctx: Context, event: Click | Count) -> None:
    if isinstance(event, Click):
        ctx.emit(event.page, to=audits)
    else:
        ctx.emit(str(event.clicks), to=audits)


def main() -> None:
    with AppHarness(app) as harness:
        harness.send(clicks, Click("ann", "/"))
        harness.send(counts, Count("ann", 3))
        assert sorted(harness.outputs(audits)) == ["/", "3"]
