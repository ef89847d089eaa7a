"""A test asks a topic for its state."""

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


def test_state() -> None:
    with AppHarness(app) as harness:
        assert harness.state(clicks, "seen", "ann") is None  # mistake: state belongs to services
