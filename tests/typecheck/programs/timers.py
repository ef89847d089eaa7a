"""Timers by event time and by the clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec

from tidegate import App, BoundedOutOfOrderness, Context, EventTime, Timer, ValueState
from tidegate.testing import AppHarness


class Reading(msgspec.Struct, frozen=True):
    sensor: str
    at: datetime


app = App("sensors", time=EventTime("at"), watermark=BoundedOutOfOrderness(by=timedelta(seconds=10)))
readings = app.topic("readings", value_type=Reading, key="sensor")
alerts = app.topic("alerts", value_type=str)


@app.process(readings, to=alerts)
async def silence(ctx: Context, reading: Reading, last: ValueState[int | None]) -> None:
    if ctx.late:
        return
    last.value = ctx.timestamp
    ctx.timers.at(reading.at + timedelta(minutes=5), name="silent")
    ctx.timers.after(timedelta(days=1), name="forget", time="processing")
    known = ctx.timers.get("silent")
    if known is not None and known.at < ctx.watermark:
        ctx.timers.cancel(known.name)


@silence.on_timer("silent")
async def silent(ctx: Context, timer: Timer, last: ValueState[int | None]) -> None:
    ctx.emit(f"{ctx.key} is silent since {last.value}, at {timer.at}", to=alerts)


@silence.on_timer()
async def forget(ctx: Context, last: ValueState[int | None]) -> None:
    last.clear()


def main() -> None:
    with AppHarness(app) as harness:
        harness.send(readings, Reading("a", datetime(2026, 1, 1, tzinfo=UTC)))
        harness.finish()
        assert harness.outputs(alerts)[0].startswith("a is silent")
        assert harness.timers(silence, "a")[0].name == "forget"
