"""A state with an aggregate function of one's own."""

from __future__ import annotations

from typing import Annotated

import msgspec

from tidegate import Aggregate, AggregateFunction, AggregatingState, App, Context
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


class Mean(AggregateFunction[float, tuple[float, int], float]):
    def create(self) -> tuple[float, int]:
        return 0.0, 0

    def add(self, accumulator: tuple[float, int], item: float) -> tuple[float, int]:
        return accumulator[0] + item, accumulator[1] + 1

    def result(self, accumulator: tuple[float, int]) -> float:
        return accumulator[0] / accumulator[1]


@app.process(clicks)
async def lengths(
    ctx: Context, click: Click, mean: Annotated[AggregatingState[float, float], Aggregate(Mean())]
) -> None:
    mean.add(len(click.page))
    known: float | None = mean.value
    ctx.timers.after(60 if known is None else known, name="flush")


@lengths.on_timer()
async def flush(ctx: Context) -> None:
    """Nothing is left to do."""


def main() -> None:
    with AppHarness(app) as harness:
        harness.send_many(clicks, [Click("ann", "/"), Click("ann", "/te")])
        assert harness.state(lengths, "mean", "ann") == 2.0
