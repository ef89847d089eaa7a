"""A program sends what the topic does not hold."""

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


async def visit(user: str) -> None:
    await clicks.send(Count(user, 1))  # mistake: clicks holds Click
