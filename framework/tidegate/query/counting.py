"""How many keys a task's store knows: counted if they are few, else estimated from those that were."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import islice
from typing import Final, NamedTuple

from tidegate.state.base import Store
from tidegate.state.layout import KEYED, QUEUE, TIMER, parse_keyed, parse_timer

__all__ = ("KeyCount", "count_keys")

LOOKED_AT: Final = 20_000
"""Entries that are looked at, over all stores: 50 ms at most."""
STEP: Final = 1000


class KeyCount(NamedTuple):
    keys: int
    exact: bool

    def __str__(self) -> str:
        return f"{'' if self.exact else 'about '}{self.keys:,} {'key' if self.keys == 1 else 'keys'}"


async def count_keys(stores: Iterable[Store]) -> KeyCount:
    stores = list(stores)
    counts = [await _count(store, LOOKED_AT // max(1, len(stores))) for store in stores]
    return KeyCount(sum(count.keys for count in counts), all(count.exact for count in counts))


async def _count(store: Store, most: int) -> KeyCount:
    """Keys that have state or timers."""
    entries = store.scan(KEYED, QUEUE)
    keys: set[bytes] = set()
    seen = 0
    while seen < most:
        step = [entry for entry, _ in islice(entries, STEP)]
        keys.update(parse_timer(entry).key if entry[:1] == TIMER else parse_keyed(entry).key for entry in step)
        seen += len(step)
        if len(step) < STEP:
            return KeyCount(len(keys), exact=True)
        await asyncio.sleep(0)
    return KeyCount(max(len(keys), store.approximate_entries() * len(keys) // seen), exact=False)
