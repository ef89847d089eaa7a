"""A service is made of a name."""

from __future__ import annotations

import msgspec

from tidegate import App


class Click(msgspec.Struct, frozen=True):
    user: str
    page: str


class Count(msgspec.Struct, frozen=True):
    user: str
    clicks: int


app = App("shop")
clicks = app.topic("clicks", value_type=Click, key="user")
counts = app.topic("counts", value_type=Count, key="user")


tally = app.process(clicks)("tally")  # mistake: a function or a ProcessFunction
