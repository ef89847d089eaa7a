"""An aggregate function lacks a method."""

from __future__ import annotations

import msgspec

from tidegate import Aggregate, AggregateFunction, App


class Click(msgspec.Struct, frozen=True):
    user: str
    page: str


class Count(msgspec.Struct, frozen=True):
    user: str
    clicks: int


app = App("shop")
clicks = app.topic("clicks", value_type=Click, key="user")
counts = app.topic("counts", value_type=Count, key="user")


class Longest(AggregateFunction[str, int, int]):
    def create(self) -> int:
        return 0

    def add(self, accumulator: int, item: str) -> int:
        return max(accumulator, len(item))


longest = Aggregate(Longest())  # mistake: it has no result()
