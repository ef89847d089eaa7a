"""Ready-made services beside one's own."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from tidegate import App, Context
from tidegate.testing import AppHarness
from tidegate_services import Counters, Deduplicator, RateLimiter


class Click(msgspec.Struct, frozen=True):
    user: str
    page: str


class Count(msgspec.Struct, frozen=True):
    user: str
    clicks: int


app = App("shop")
clicks = app.topic("clicks", value_type=Click, key="user")
counts = app.topic("counts", value_type=Count, key="user")

limiter = RateLimiter(app, rate=5, burst=10)
allowed = app.topic("allowed", value_type=Click)
unique = Deduplicator(app, topic=clicks, to=allowed, id="page", within=timedelta(minutes=10), name="unique")
counters = Counters(app, size=10)
seen: list[str] = []


@app.process(allowed)
async def tally(ctx: Context, click: Click) -> None:
    seen.append(click.page)


async def visit(user: str) -> bool:
    decision = await limiter.acquire(user, 2.0)
    return decision.allowed and decision.remaining > 1


def main() -> None:
    with AppHarness(app) as harness:
        harness.send_many(clicks, [Click("ann", "/"), Click("ann", "/")])
        assert seen == ["/"]
