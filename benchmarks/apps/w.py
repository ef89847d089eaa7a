"""W as a Tidegate app."""

from __future__ import annotations

from typing import Annotated

from benchmarks.apps.settings import GUARANTEE, ID, INPUT, OUTPUT, PARTITIONS
from benchmarks.workloads.events import Count, Like
from tidegate import App, Context, Default, ValueState

__all__ = ("app",)

app = App(ID, retention_hours=0)
likes = app.topic(INPUT, value_type=Like, key="liked", partitions=PARTITIONS)
counts = app.topic(OUTPUT, value_type=Count, partitions=4)


@app.process(likes, to=counts, guarantee=GUARANTEE)
async def counter(ctx: Context, like: Like, seen: Annotated[ValueState[int], Default(0)]) -> None:
    seen.value += 1
    if seen.value % 2 == 0:
        ctx.emit(Count(like.liked, seen.value))
