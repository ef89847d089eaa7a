"""The number of keys of a service: counted if there are few, else estimated from a sample."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple

from tidegate.formatting import count
from tidegate.functions.definition import ServiceDefinition
from tidegate.query.views import TaskView, key_groups
from tidegate.state.base import Store
from tidegate.state.layout import TIMER, keyed_prefix, parse_tail, prefix_range

__all__ = ("KeyCount", "count_keys")

SAMPLED_ENTRIES: Final = 20_000
"""Over all tasks; reading them takes about 50 ms."""


class KeyCount(NamedTuple):
    keys: int
    exact: bool

    def __str__(self) -> str:
        return f"{'' if self.exact else 'about '}{count(self.keys, 'key')}"


async def count_keys(tasks: Iterable[tuple[ServiceDefinition, TaskView]]) -> KeyCount:
    """The number of keys with state or timers in these tasks."""
    tasks = list(tasks)
    counts = [await _count(definition, view, SAMPLED_ENTRIES // max(1, len(tasks))) for definition, view in tasks]
    return KeyCount(sum(count.keys for count in counts), all(count.exact for count in counts))


async def _count(definition: ServiceDefinition, view: TaskView, limit: int) -> KeyCount:
    """Count key group by key group up to `limit` entries. Beyond that, extrapolate from the entries per key so far."""
    stems = list(_stems(definition))
    keys = entries = 0
    for group in key_groups(definition, view.number):
        sample = _sample(view.store, stems, bytes((group,)), limit - entries)
        keys += len(sample.keys)
        entries += sample.entries
        if sample.bound is not None:
            return KeyCount(view.store.approximate_entries() * keys // max(1, entries), exact=False)
        await asyncio.sleep(0)
    return KeyCount(keys, exact=True)


def _stems(definition: ServiceDefinition) -> Iterator[bytes]:
    """The store key prefixes of all keyed states, and of the timers."""
    for name, declaration in definition.states.items():
        if declaration.kind != "operator":
            yield keyed_prefix(name)
        if declaration.kind == "list":
            yield keyed_prefix(f"{name}.bounds")
    yield TIMER


@dataclass
class _Sample:
    """The entries of one key group whose tails are below `bound`; without a bound, all of them."""

    tails: list[tuple[bytes, bytes]] = field(default_factory=list)
    """Stem, and the rest of the store key after the key group."""
    bound: bytes | None = None

    @property
    def keys(self) -> set[bytes]:
        return {parse_tail(tail)[0] for _, tail in self.tails}

    @property
    def entries(self) -> int:
        """A timer has two: its own and the one in the timer queue."""
        return sum(2 if stem == TIMER else 1 for stem, _ in self.tails)


def _sample(store: Store, stems: list[bytes], group: bytes, limit: int) -> _Sample:
    """The first entries of each stem, at most `limit`, cut at the same key for all stems."""
    sample = _Sample()
    for stem in stems:
        start, end = prefix_range(stem + group)
        found = [key[len(start) :] for key, _ in islice(store.scan(start, end), max(1, limit) + 1)]
        if len(found) > max(1, limit):
            last = found.pop()
            sample.bound = last if sample.bound is None else min(last, sample.bound)
        sample.tails += [(stem, tail) for tail in found]
    if sample.bound is not None:
        sample.tails = [(stem, tail) for stem, tail in sample.tails if tail < sample.bound]
    return sample
