"""A list per task."""

from __future__ import annotations

from typing import Annotated

import msgspec

from tidegate import App, Context, OperatorState, Redistribute
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


@app.process(clicks)
async def audit(ctx: Context, click: Click, odd: Annotated[OperatorState[str], Redistribute("union")]) -> None:
    if click.page not in odd:
        odd.append(click.page)
    if len(odd) > 10:
        odd.replace(list(odd)[-10:])


def main() -> None:
    with AppHarness(app) as harness:
        harness.send(clicks, Click("ann", "/"))
        assert harness.state(audit, "odd") == ["/"]
