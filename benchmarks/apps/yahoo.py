"""Yahoo's benchmark as a Tidegate app: two services, with a topic keyed by campaign between them."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import msgspec

from benchmarks.apps.settings import CAMPAIGNS, GUARANTEE, ID, INPUT, OUTPUT, PARTITIONS
from benchmarks.workloads.ads import GRACE, WINDOW
from benchmarks.workloads.events import Counted
from tidegate import App, BoundedOutOfOrderness, Context, EventTime, MapState, ValueState

__all__ = ("app",)


class Ad(msgspec.Struct):
    """The fields that are used; decoding skips the others."""

    ad_id: str
    event_type: str
    event_time: int


class View(msgspec.Struct):
    campaign: str
    event_time: int


app = App(
    ID,
    retention_hours=0,
    time=EventTime("event_time"),
    watermark=BoundedOutOfOrderness(by=timedelta(milliseconds=GRACE)),
)
ads = app.topic(INPUT, value_type=Ad, partitions=PARTITIONS)
views = app.topic(f"{ID}-views", value_type=View, key="campaign", partitions=4)
counts = app.topic(OUTPUT, value_type=Counted, partitions=4)

campaign_of: dict[str, str] = json.loads(Path(CAMPAIGNS).read_text()) if CAMPAIGNS else {}


@app.process(ads, to=views, guarantee=GUARANTEE)
async def joined(ctx: Context, ad: Ad) -> None:
    """Filter views, join the campaign."""
    if ad.event_type == "view":
        ctx.emit(View(campaign_of[ad.ad_id], ad.event_time))


@app.process(views, to=counts, guarantee=GUARANTEE)
async def counter(
    ctx: Context, view: View, windows: MapState[int, int], emitted: ValueState[dict[int, int] | None]
) -> None:
    """One actor per campaign: a count per window, a timer at each window's end and one by the clock."""
    window = view.event_time - view.event_time % WINDOW
    count = windows.get(window)
    if count is None:
        ctx.timers.at(window + WINDOW - 1, name=f"close {window}")
        if ctx.timers.get("tell") is None:
            ctx.timers.after(timedelta(seconds=1), name="tell", time="processing")
    windows[window] = (count or 0) + 1


@counter.on_timer("tell")
async def tell(ctx: Context, windows: MapState[int, int], emitted: ValueState[dict[int, int] | None]) -> None:
    """The counts that changed within the last second."""
    current, before = dict(windows.items()), emitted.value or {}
    for window, count in current.items():
        if before.get(window) != count:
            ctx.emit(Counted(ctx.key, window, count, last=False))
    emitted.value = current
    if current:
        ctx.timers.after(timedelta(seconds=1), name="tell", time="processing")


@counter.on_timer()
async def close(ctx: Context, windows: MapState[int, int], emitted: ValueState[dict[int, int] | None]) -> None:
    """A window's last count."""
    window = ctx.timestamp - WINDOW + 1
    ctx.emit(Counted(ctx.key, window, windows.pop(window), last=True))
