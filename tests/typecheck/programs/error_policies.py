"""What happens to records that fail, and how long handlers may take."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import msgspec

from tidegate import DEAD_LETTER, SKIP, App, Context, retry
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


@app.process(clicks, errors=retry(2, backoff=0.01, then=DEAD_LETTER), timeout=timedelta(seconds=5), concurrency=10)
async def strict(ctx: Context, click: Click) -> None:
    if not click.page.startswith("/"):
        raise ValueError(click.page)
    await asyncio.sleep(0)


@app.process(clicks, to=[counts], errors=SKIP, guarantee="at_least_once", parallelism=2, key_by="page")
async def lenient(ctx: Context, click: Click) -> None:
    ctx.emit(Count(click.user, len(click.page)))


def main() -> None:
    with AppHarness(app, services=[strict]) as harness:
        harness.send(clicks, Click("ann", "tea"))
        harness.advance(seconds=10)
        (letter,) = harness.dead_letters(strict)
        assert letter.error == "tea"
