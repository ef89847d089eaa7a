"""Keys that are numbers."""

from __future__ import annotations

from typing import Annotated

import msgspec

from tidegate import App, Context, Default, ValueState
from tidegate.testing import AppHarness


class Reading(msgspec.Struct, frozen=True):
    sensor: int
    celsius: float


app = App("sensors")
readings = app.topic("readings", value_type=Reading, key="sensor", key_type=int)
alerts = app.topic("alerts", value_type=str)


@app.process(readings, to=alerts)
async def watch(ctx: Context[int], reading: Reading, highest: Annotated[ValueState[float], Default(0.0)]) -> None:
    highest.value = max(highest.value, reading.celsius)
    if reading.celsius > 40:
        ctx.timers.after(60, name="check")
        ctx.emit(f"sensor {ctx.key + 1_000}", to=alerts)


@watch.on_timer("check")
async def check(ctx: Context[int], highest: Annotated[ValueState[float], Default(0.0)]) -> None:
    ctx.emit(f"{ctx.key:04}: {highest.value:.1f}")


def main() -> None:
    with AppHarness(app) as harness:
        harness.send(readings, Reading(7, 41.5))
        assert harness.outputs(alerts) == ["sensor 1007"]
        assert harness.state(watch, "highest", 7) == 41.5
