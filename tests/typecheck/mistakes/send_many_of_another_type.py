"""A program sends many of what the topic does not hold."""

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


async def visit(users: list[str]) -> None:
    await clicks.send_many([Count(user, 1) for user in users])  # mistake: clicks holds Click
