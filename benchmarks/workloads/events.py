"""The events and the results of the workloads, typed, and the likes themselves. Apps and harness share them."""

from __future__ import annotations

import random
from collections.abc import Iterator

import msgspec

__all__ = ("Count", "Counted", "Event", "Like", "likes_of")

Event = tuple[bytes, bytes, int]
"""Key, value, timestamp in ms."""


class Like(msgspec.Struct):
    liker: str
    liked: str
    ts: int


class Count(msgspec.Struct):
    """W's result: the number of likes of a person."""

    who: str
    n: int


class Counted(msgspec.Struct, rename={"last": "final"}):
    """Yahoo's result: the views of a campaign in a window, so far or finally."""

    campaign: str
    window: int
    count: int
    last: bool


def likes_of(
    events: int, keys: int, seed: int = 1, *, each_once: bool = False, start: int = 1_700_000_000_000
) -> Iterator[Event]:
    """W's events: with `each_once`, key after key, else keys at random."""
    rng = random.Random(seed)
    for number in range(events):
        liked = f"user-{number if each_once else rng.randrange(keys)}"
        at = start + number
        yield liked.encode(), b'{"liker":"user-%d","liked":"%s","ts":%d}' % (number % 997, liked.encode(), at), at
