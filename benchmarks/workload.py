"""Workload W: JSON likes, a persistent counter per key, an output for every second event of a key."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Annotated

import msgspec
import orjson

from tidegate import App, Context, Default, ValueState

__all__ = ("Count", "Like", "app", "bare_loop", "likes_of")


class Like(msgspec.Struct):
    liker: str
    liked: str
    ts: int


class Count(msgspec.Struct):
    who: str
    n: int


app = App("bench", partitions=4, retention_hours=0)
likes = app.topic("likes", value_type=Like, key="liked")
counts = app.topic("counts", value_type=Count)


@app.process(likes, to=counts)
async def counter(ctx: Context, like: Like, seen: Annotated[ValueState[int], Default(0)]) -> None:
    seen.value += 1
    if seen.value % 2 == 0:
        ctx.emit(Count(like.liked, seen.value))


def likes_of(events: int, keys: int, seed: int = 1, *, each_once: bool = False) -> Iterator[tuple[bytes, bytes, int]]:
    """Key, JSON and timestamp of each event; with `each_once`, key after key, else keys at random."""
    rng = random.Random(seed)
    for number in range(events):
        liked = f"user-{number if each_once else rng.randrange(keys)}"
        at = 1_700_000_000_000 + number
        yield liked.encode(), b'{"liker":"user-%d","liked":"%s","ts":%d}' % (number % 997, liked.encode(), at), at


def bare_loop(values: list[bytes]) -> float:
    """Events per second of the least that could be done: parse, count in a dict, over records in memory."""
    counters: dict[str, int] = {}
    started = time.perf_counter()
    for raw in values:
        liked = orjson.loads(raw)["liked"]
        counters[liked] = counters.get(liked, 0) + 1
    return len(values) / (time.perf_counter() - started)
