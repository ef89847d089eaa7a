"""Times to live, versions and visibility."""

from __future__ import annotations

from typing import Annotated

import msgspec

from tidegate import TTL, App, Context, Default, MapState, Queryable, ValueState, Version
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

Forgotten = TTL(days=30, on="access")


@app.process(clicks)
async def visits(
    ctx: Context,
    click: Click,
    last: Annotated[ValueState[str | None], TTL(hours=1, time="event")],
    pages: Annotated[MapState[str, int], Default(0), Forgotten],
    secret: Annotated[ValueState[str | None], Queryable(False)],
    total: Annotated[ValueState[int], Default(0), Version(1)],
) -> None:
    last.value = click.page
    pages[click.page] += 1
    secret.value = click.user
    total.value += 1


def main() -> None:
    with AppHarness(app) as harness:
        harness.send(clicks, Click("ann", "/"))
        harness.advance(days=31)
        assert harness.state(visits, "pages", "ann") == {}
