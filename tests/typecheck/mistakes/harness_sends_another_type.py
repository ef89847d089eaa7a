"""A test sends what the topic does not hold."""

from __future__ import annotations

import msgspec

from tidegate import App
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


def test_clicks_are_counted() -> None:
    with AppHarness(app) as harness:
        harness.send(clicks, Count("ann", 1))  # mistake: clicks holds Click
