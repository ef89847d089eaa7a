"""A service keys its input by a field, by a function, and by one per topic."""

from __future__ import annotations

import msgspec

from tidegate import App, Context
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

seen: list[str] = []


def first_letter(event: Click | Count) -> str:
    return event.user[0]


@app.process(clicks, key_by="page")
async def by_page(ctx: Context, click: Click) -> None:
    seen.append(ctx.key)


@app.process(clicks, key_by=lambda click: click.page.strip("/") or "home")
async def by_name(ctx: Context, click: Click) -> None:
    seen.append(ctx.key)


@app.process(clicks, counts, key_by=first_letter)
async def by_letter(ctx: Context, event: Click | Count) -> None:
    seen.append(ctx.key)


@app.process(clicks, counts, key_by={clicks: "page", counts: lambda count: str(count.clicks)})
async def by_each(ctx: Context, event: Click | Count) -> None:
    seen.append(ctx.key)


def main() -> None:
    with AppHarness(app) as harness:
        harness.send(clicks, Click("ann", "/tea"))
        assert sorted(seen) == ["/tea", "/tea", "a", "tea"]
