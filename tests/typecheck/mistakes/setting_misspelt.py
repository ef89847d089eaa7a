"""An app has no such setting."""

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


other = App("other", comit_interval=0.1)  # mistake: commit_interval
