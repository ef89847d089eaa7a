"""Seeded input."""

from __future__ import annotations

import random
from collections.abc import Iterator

from tests.faults.support.apps import Entry

__all__ = ("START", "entries")

START = 1_700_000_000_000


def entries(
    seed: int,
    count: int,
    *,
    keys: int = 12,
    waiting: float = 0.0,
    longest: float = 0.02,
    failing: float = 0.0,
    fails: int = 1,
    in_order: bool = False,
    first: int = 1,
) -> Iterator[Entry]:
    """`count` entries. `waiting`, `failing`: which share of them waits, up to `longest` seconds, or fails."""
    dice = random.Random(seed)
    at = START
    for number in range(first, first + count):
        at += dice.randrange(0, 40)
        jitter = 0 if in_order else dice.randrange(-150, 50)
        yield Entry(
            id=number,
            key=f"k{dice.randrange(keys)}",
            amount=dice.randrange(4),
            at=at + jitter,
            wait=round(dice.uniform(0.001, longest), 4) if dice.random() < waiting else 0.0,
            fails=fails if dice.random() < failing else 0,
            owner=f"o{dice.randrange(keys)}",
        )
