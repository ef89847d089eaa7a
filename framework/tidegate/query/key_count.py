"""How many keys a service knows: counted if they are few, else estimated from a sample."""

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

LOOKED_AT: Final = 20_000
"""Entries that are looked at, over all tasks: some 50 ms."""


class KeyCount(NamedTuple):
    keys: int
    exact: bool

    def __str__(self) -> str:
        return f"{'' if self.exact else 'about '}{count(self.keys, 'key')}"


async def count_keys(tasks: Iterable[tuple[ServiceDefinition, TaskView]]) -> KeyCount:
    """Keys that have state or timers, of all these tasks."""
    tasks = list(tasks)
    counts = [await _count(definition, view, LOOKED_AT // max(1, len(tasks))) for definition, view in tasks]
    return KeyCount(sum(count.keys for count in counts), all(count.exact for count in counts))


async def _count(definition: ServiceDefinition, view: TaskView, most: int) -> KeyCount:
    """Key group by key group, as long as that is not too much. From there on, by how many entries a key has so far."""
    stems = list(_stems(definition))
    keys = entries = 0
    for group in key_groups(definition, view.number):
        sample = _sample(view.store, stems, bytes((group,)), most - entries)
        keys += len(sample.keys)
        entries += sample.entries
        if sample.bound is not None:
            return KeyCount(view.store.approximate_entries() * keys // max(1, entries), exact=False)
        await asyncio.sleep(0)
    return KeyCount(keys, exact=True)


def _stems(definition: ServiceDefinition) -> Iterator[bytes]:
    """What the entries of keys begin with: those of each state, and the timers."""
    for name, declaration in definition.states.items():
        if declaration.kind != "operator":
            yield keyed_prefix(name)
        if declaration.kind == "list":
            yield keyed_prefix(f"{name}.bounds")
    yield TIMER


@dataclass
class _Sample:
    """Of one key group, the keys below `bound`; without one, all of them."""

    places: list[tuple[bytes, bytes]] = field(default_factory=list)
    """Stem, and what comes after the group."""
    bound: bytes | None = None

    @property
    def keys(self) -> set[bytes]:
        return {parse_tail(place)[0] for _, place in self.places}

    @property
    def entries(self) -> int:
        """A timer has a second one, in the queue."""
        return sum(2 if stem == TIMER else 1 for stem, _ in self.places)


def _sample(store: Store, stems: list[bytes], group: bytes, most: int) -> _Sample:
    """The entries of all stems for the same keys: the first ones, as many as there may be of a stem."""
    sample = _Sample()
    for stem in stems:
        start, end = prefix_range(stem + group)
        found = [key[len(start) :] for key, _ in islice(store.scan(start, end), max(1, most) + 1)]
        if len(found) > max(1, most):
            last = found.pop()
            sample.bound = last if sample.bound is None else min(last, sample.bound)
        sample.places += [(stem, place) for place in found]
    if sample.bound is not None:
        sample.places = [(stem, place) for stem, place in sample.places if place < sample.bound]
    return sample
