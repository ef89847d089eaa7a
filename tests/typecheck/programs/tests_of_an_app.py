"""A test that moves the clock, crashes the app and looks at everything."""

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
async def tally(ctx: Context, click: Click, seen: Annotated[ValueState[int], Default(0)]) -> None:
    seen.value += 1
    ctx.emit(Count(click.user, seen.value), to=counts)


def main() -> None:
    with AppHarness(app, services=[tally], partitions=2) as harness:
        harness.send(clicks, Click("ann", "/"), key="ann", timestamp=harness.clock.now())
        harness.send_many(clicks, (Click(user, "/") for user in ("ann", "bob")), key=lambda click: click.user)
        harness.advance(minutes=5)
        harness.crash()
        values = sorted(count.clicks for count in harness.outputs(counts))
        assert values == [1, 1, 2]
        assert harness.records("counts")[0].key in ("ann", "bob")
        assert [record.value for record in harness.records(counts)]
        assert harness.state("tally", "seen", "ann") == 2
