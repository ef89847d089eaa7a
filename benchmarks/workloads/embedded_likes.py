"""W on the embedded log: JSON likes, a persistent counter per key, an output for every second event of a key."""

from __future__ import annotations

import time
from typing import Annotated

import orjson

from benchmarks.workloads.events import Count, Like
from tidegate import App, Context, Default, ValueState

__all__ = ("app", "bare_loop")


app = App("bench", partitions=4, retention_hours=0)
likes = app.topic("likes", value_type=Like, key="liked")
counts = app.topic("counts", value_type=Count)


@app.process(likes, to=counts)
async def counter(ctx: Context, like: Like, seen: Annotated[ValueState[int], Default(0)]) -> None:
    seen.value += 1
    if seen.value % 2 == 0:
        ctx.emit(Count(like.liked, seen.value))


def bare_loop(values: list[bytes]) -> float:
    """Events per second of the minimal loop: parse and count in a dict, over records in memory."""
    counters: dict[str, int] = {}
    started = time.perf_counter()
    for raw in values:
        liked = orjson.loads(raw)["liked"]
        counters[liked] = counters.get(liked, 0) + 1
    return len(values) / (time.perf_counter() - started)
