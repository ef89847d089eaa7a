"""Maps and lists are used as Python's are."""

from __future__ import annotations

from typing import Annotated

import msgspec

from tidegate import App, Context, Default, ListState, MapState
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


@app.process(clicks, to=counts)
async def visits(
    ctx: Context, click: Click, pages: Annotated[MapState[str, int], Default(0)], recent: ListState[str]
) -> None:
    pages[click.page] += 1
    recent.append(click.page)
    if len(recent) > 2:
        recent.popleft()
    if "/tea" in pages and not recent[0].startswith("/tea"):
        del pages["/tea"]
    if pages:
        ctx.emit(Count(click.user, sum(pages.values())))
    for page, times in pages.items():
        if times > 100:
            recent.extend([page] * times)


def main() -> None:
    with AppHarness(app) as harness:
        harness.send_many(clicks, [Click("ann", "/"), Click("ann", "/"), Click("ann", "/ink")])
        assert harness.state(visits, "recent", "ann") == ["/", "/ink"]
        assert harness.state(visits, "pages", "ann") == {"/": 2, "/ink": 1}
