"""A state whose type has changed."""

from __future__ import annotations

from typing import Annotated

import msgspec

from tidegate import App, Context, Default, ProcessFunction, ValueState, Version, migration
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


class Visits(msgspec.Struct, frozen=True):
    number: int = 0
    last: str = ""


@app.process(clicks)
async def tally(
    ctx: Context, click: Click, visits: Annotated[ValueState[Visits], Default(Visits()), Version(2)]
) -> None:
    visits.value = Visits(visits.value.number + 1, click.page)


@tally.migrate("visits", from_version=1)
def with_a_page(old: int) -> Visits:
    return Visits(old)


@app.process(clicks)
class Again(ProcessFunction[Click, None]):
    visits: Annotated[ValueState[Visits | None], Version(2)]

    async def process(self, ctx: Context, click: Click) -> None:
        self.visits.value = Visits(1, click.page)

    @staticmethod
    @migration("visits", from_version=1)
    def with_a_page(old: int) -> Visits:
        return Visits(old)


def main() -> None:
    with AppHarness(app) as harness:
        harness.send(clicks, Click("ann", "/"))
        assert harness.state(tally, "visits", "ann") == Visits(1, "/")
