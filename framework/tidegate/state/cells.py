"""The kinds of cells: by key, by key and subkey, items of lists, and private cells of suspended handlers. See
`overlay`."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from heapq import merge as merge_sorted
from itertools import islice
from operator import itemgetter
from typing import Any, Final

from tidegate.errors import DataError
from tidegate.state.layout import prefix_range
from tidegate.state.overlay import ABSENT, Cells, Entry

__all__ = ("Ask", "ListCells", "MapCells", "PrivateCells", "ValueCells")

_PAGE: Final = 256
"""Number of map entries that a handler in a thread gets per question."""
_SAMPLE: Final = 16
"""Keys of a sample that `gather` does not load, to measure whether handlers access them."""
_FEW: Final = 64
"""Up to so many new subkeys are inserted into the sorted list one by one; more are sorted with it."""


def _generation(entries: Iterable[Entry]) -> dict[bytes, Entry]:
    """By key. Indexing it with a missing key returns None, and inserts None."""
    return defaultdict(type(None), {entry.key: entry for entry in entries})  # type: ignore[arg-type]


class ValueCells(Cells):
    """One entry per key.

    A cache of two generations: entries that were not accessed during a whole generation are evicted. A read is cheaper
    than with an LRU's order."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._young = _generation(())
        self._old: dict[bytes, Entry] = {}
        self.rotations = 0
        """Number of evictions."""
        self._gathers = 0
        self._looked_up = self._missed = 0
        """Recently gathered keys, and how many of them were not in memory."""
        self._sampled = self._accessed = 0
        """Keys of the last sample, and how many of them handlers have accessed."""
        self._eager = False
        self._mostly_cached = False
        """Most keys of the last gather were in memory."""

    def entry(self, key: bytes, sub: bytes = b"") -> Entry:
        entry = self._young.get(key)
        if entry is None:
            self._accessed += 1
            entry = self._old.pop(key, None)
            if entry is None:
                store_key = self.base(key)
                entry = self._load(key, b"", store_key, self.store.get(store_key))
            self._young[key] = entry
        return entry

    def gather(self, keys: Sequence[bytes | None]) -> Sequence[Entry | None]:
        """The entries of the next keys, as far as they are in memory. Valid until the event loop turns.

        Missing entries are loaded if handlers access most of them: every 16th time, a sample is not loaded, to measure
        that."""
        found = self._find(keys)
        self._looked_up += len(keys)
        if all(found):
            self._mostly_cached = True
            return found
        entries, young = [*found], self._young
        gaps = [index for index, entry in enumerate(entries) if entry is None]
        self._mostly_cached = 4 * len(gaps) < len(keys)
        missing = dict.fromkeys([key for index in gaps if (key := keys[index]) is not None])
        self._missed += len(gaps)
        if self._sampled:
            self._eager, self._sampled = 2 * self._accessed >= self._sampled, 0
        self._gathers += 1
        if self._gathers % 16 == 1:
            sample = [*islice(missing, _SAMPLE)]
            self._sampled, self._accessed = len(sample), 0
            for key in sample:
                del missing[key]
        if self._eager:
            self.load([*missing])
        for index in gaps:
            key = keys[index]
            entry = entries[index] = young.get(key)  # type: ignore[arg-type]
            if entry is None:
                young.pop(key, None)  # type: ignore[arg-type]  # what `_find` may have left there
        return entries

    def _find(self, keys: Sequence[bytes | None]) -> Sequence[Entry | None]:
        """The entries in memory, None for the others; a None may be inserted for some of those, too.

        Looking up many entries before the first is used takes half the time, since the processor fetches the memory of
        several at once. The less work between two look-ups, the better: with all hashes computed, and no call per key,
        it takes two thirds of the time of `get` (0.30 µs against 0.45, with 100 k entries)."""
        if self._mostly_cached and len(keys) > 1:
            wanted = (*keys,)
            hash(wanted)  # bytes objects cache their hash
            return itemgetter(*wanted)(self._young)  # type: ignore[no-any-return]
        return [*map(self._young.get, keys)]  # type: ignore[arg-type]

    def load(self, keys: Sequence[bytes]) -> None:
        """Load plain entries of distinct keys with one call of the store, which is faster than one call per key. Keys
        that do not belong to this task, and unreadable values, are left out; `entry` raises their error on access."""
        young, old = self._young, self._old
        if old:
            young.update({key: old.pop(key) for key in keys if key in old})
            keys = [key for key in keys if young.get(key) is None]
        keys, places = self.places(keys)
        self._keep(keys, places, self.store.get_many(places))

    def _keep(self, keys: Sequence[bytes], places: Sequence[bytes], found: Sequence[bytes | None]) -> None:
        young, decode, failures = self._young, self.codec.decode_raw, self.codec.decode_failures
        self.loaded += len(keys)
        for key, place, stored in zip(keys, places, found, strict=True):
            try:
                young[key] = Entry(key, place, ABSENT if stored is None else decode(stored), 0)
            except failures:
                continue

    # -- prefetching -------------------------------------------------------------------------------------------------
    @property
    def often_missing(self) -> bool:
        """Whether many recently gathered keys were not in memory, and handlers access them. Resets the counters."""
        often = self._eager and 4 * self._missed >= self._looked_up > 0
        self._looked_up = self._missed = 0
        return often

    def not_cached(self, keys: Iterable[bytes | None]) -> list[bytes]:
        """The keys that are not in memory, without duplicates."""
        young, old = self._young, self._old
        missing = dict.fromkeys([key for key in keys if key not in young])
        return [key for key in missing if key is not None and key not in old]

    def add_prefetched(self, keys: Sequence[bytes], places: Sequence[bytes], found: Sequence[bytes | None]) -> None:
        """Add prefetched values to memory, unless the keys are there by now."""
        young, old = self._young, self._old
        news = [row for row in zip(keys, places, found, strict=True) if row[0] not in young and row[0] not in old]
        if news:
            self._keep(*zip(*news, strict=True))

    def places(self, keys: Sequence[bytes]) -> tuple[Sequence[bytes], list[bytes]]:
        """The keys that belong to this task, and their store keys."""
        try:
            return keys, self.base.many(keys)
        except DataError:
            return self._owned_places(keys)

    def _owned_places(self, keys: Sequence[bytes]) -> tuple[list[bytes], list[bytes]]:
        places: dict[bytes, bytes] = {}
        for key in keys:
            with suppress(DataError):
                places[key] = self.base(key)
        return [*places], [*places.values()]

    def rotate(self) -> None:
        self.rotations += 1
        self._drop(self._old)
        self._old, self._young = self._young, _generation(self.dirty)
        self.loaded = len(self._young)


class MapCells(Cells):
    """Any number of entries per key, by subkey. The entries of a key are evicted together."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._young: dict[bytes, dict[bytes, Entry]] = {}
        self._old: dict[bytes, dict[bytes, Entry]] = {}
        self._orders: dict[bytes, list[bytes]] = {}
        """By key, the sorted subkeys of slots that were iterated."""

    def slot(self, key: bytes) -> dict[bytes, Entry]:
        """The entries of a key that are in memory."""
        slot = self._young.get(key)
        if slot is None:
            slot = self._young[key] = self._old.pop(key, {})
        return slot

    def entry(self, key: bytes, sub: bytes = b"") -> Entry:
        slot = self.slot(key)
        entry = slot.get(sub)
        if entry is None:
            store_key = self.base(key) + sub
            entry = slot[sub] = self._load(key, sub, store_key, self.store.get(store_key))
        return entry

    def adopt(self, key: bytes, sub: bytes, stored: bytes) -> Entry:
        """The entry for bytes that a scan has returned, unless a newer one is in memory."""
        slot = self.slot(key)
        entry = slot.get(sub)
        if entry is None:
            entry = slot[sub] = self._load(key, sub, self.base(key) + sub, stored)
        return entry

    def subkeys(
        self, key: bytes, low: bytes = b"", high: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes | None]]:
        """The subkeys from `low` up to but not including `high` that may exist, in order, with the stored bytes of
        those that are only in the store. Reads the store lazily."""
        base = self.base(key)
        end = prefix_range(base)[1] if high is None else base + high
        scan = self.store.scan(base + low, end, reverse=reverse)
        stored = ((store_key[len(base) :], value) for store_key, value in scan)
        slot = self.slot(key)
        return _either(slot, _in_memory(slot, self._order(key), low, high, reverse=reverse), stored, reverse=reverse)

    def _order(self, key: bytes) -> list[bytes]:
        """The subkeys in memory, in order. A slot only grows, at its end: new subkeys are inserted into the sorted
        list, so that a range of a large map does not sort all of it each time."""
        slot, order = self.slot(key), self._orders.get(key)
        if order is None:
            order = self._orders[key] = sorted(slot)
        elif new := len(slot) - len(order):
            if new <= _FEW:
                for sub in islice(reversed(slot), new):
                    insort(order, sub)
            else:
                order += islice(reversed(slot), new)
                order.sort()
        return order

    def rotate(self) -> None:
        self._orders = {}
        self._drop(self._old)
        self._old, self._young, self.loaded = self._young, {}, len(self.dirty)
        for key in {entry.key for entry in self.dirty}:
            self._young[key] = self._old.pop(key)


class ListCells(MapCells):
    """The items of lists, by index. `bounds` has the first and the last index of each list."""

    def __init__(self, bounds: ValueCells, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._bounds = bounds

    def _after_sweep(self, keys: set[bytes]) -> None:
        """Remove the bounds of lists that have become empty."""
        for key in keys:
            entries = (self.entry(key, sub) for sub, _ in self.subkeys(key))
            if all(entry.value is ABSENT for entry in entries):
                bounds = self._bounds.entry(key)
                bounds.value = ABSENT
                self._bounds.mark_dirty(bounds)


Ask = Callable[[Callable[[], Any]], Any]
"""Runs a function on shared cells in the thread that owns them, and returns its result."""


def _directly(question: Callable[[], Any]) -> Any:
    return question()


class PrivateCells(MapCells):
    """The private copies of one invocation, over shared cells that other handlers change meanwhile."""

    def __init__(self, shared: Cells, ask: Ask | None = None) -> None:
        """`ask`: for a handler in a thread, which must not touch the shared cells itself."""
        super().__init__(
            shared.store, shared.codec, shared.base, ttl=shared.ttl, default=shared.default, largest=shared.largest
        )
        self.shared = shared
        self._ask, self._page = (_directly, 1) if ask is None else (ask, _PAGE)

    def entry(self, key: bytes, sub: bytes = b"") -> Entry:
        entry = self.slot(key).get(sub)
        return self._ask(partial(self.copy, key, sub)) if entry is None else entry

    def adopt(self, key: bytes, sub: bytes, stored: bytes) -> Entry:
        return self.entry(key, sub)

    def copy(self, key: bytes, sub: bytes = b"") -> Entry:
        """The private copy of an entry; copies the shared entry on the first access."""
        slot = self.slot(key)
        mine = slot.get(sub)
        if mine is None:
            entry = self.shared.entry(key, sub)
            value = self.decode(entry.raw) if self.mutable else entry.value
            mine = slot[sub] = Entry(entry.key, entry.store_key, value, 0, entry.sub, entry.raw, entry.expires)
        return mine

    def subkeys(
        self, key: bytes, low: bytes = b"", high: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes | None]]:
        assert isinstance(self.shared, MapCells)  # noqa: S101  called for maps and lists only
        if self._page == 1:
            shared = self.shared.subkeys(key, low, high, reverse=reverse)
        else:
            shared = self._pages(key, partial(self.shared.subkeys, key, low, high, reverse=reverse))
        slot = self.slot(key)
        return _either(slot, _in_memory(slot, self._order(key), low, high, reverse=reverse), shared, reverse=reverse)

    def _pages(
        self, key: bytes, begin: Callable[[], Iterator[tuple[bytes, bytes | None]]]
    ) -> Iterator[tuple[bytes, bytes | None]]:
        """The shared subkeys, many per question, and their entries with them."""
        rows = self._ask(begin)
        while page := self._ask(partial(self._next_page, key, rows)):
            yield from page

    def _next_page(self, key: bytes, rows: Iterator[tuple[bytes, bytes | None]]) -> list[tuple[bytes, bytes | None]]:
        page = [*islice(rows, self._page)]
        for sub, _ in page:
            self.copy(key, sub)
        return page

    def copy_changed(self, entry: Entry) -> Entry:
        """A private copy of a shared entry with the handler's changes, taken before the shared one is rolled back."""
        mine = self.slot(entry.key)[entry.sub] = Entry(
            entry.key, entry.store_key, entry.value, 0, entry.sub, entry.raw, entry.expires
        )
        mine.made = entry.made
        return mine

    def merge(self) -> None:
        """The handler has finished: its changes move to the shared cells."""
        for private in self.dirty:
            shared = self.shared.entry(private.key, private.sub)
            shared.value, shared.raw, shared.expires = private.value, private.raw, private.expires
            self.shared.mark_dirty(shared)


def _in_memory(
    slot: dict[bytes, Entry], order: list[bytes], low: bytes, high: bytes | None, *, reverse: bool
) -> Iterator[tuple[bytes, None]]:
    """The subkeys in memory between the bounds, as they are now: subkeys that are added later are left out."""
    known, ordered, later = len(slot), len(order), frozenset[bytes]()
    size = 8
    while True:
        if len(order) != ordered:
            ordered, later = len(order), frozenset(islice(reversed(slot), len(slot) - known))
        start, end = bisect_left(order, low), len(order) if high is None else bisect_left(order, high)
        portion = order[max(start, end - size) : end] if reverse else order[start : min(end, start + size)]
        if start >= end:
            return
        if reverse:
            portion.reverse()
            high = portion[-1]
        else:
            low = portion[-1] + b"\x00"
        for sub in portion:
            if sub not in later:
                yield sub, None
        size = min(2 * size, 512)


def _either(
    here: dict[bytes, Entry],
    ours: Iterable[tuple[bytes, bytes | None]],
    below: Iterable[tuple[bytes, bytes | None]],
    *,
    reverse: bool,
) -> Iterator[tuple[bytes, bytes | None]]:
    """The subkeys of both, in order, without duplicates; with stored bytes only for those that are not in memory."""
    last: bytes | None = None
    for sub, stored in merge_sorted(ours, below, key=itemgetter(0), reverse=reverse):
        if sub != last:
            last = sub
            yield sub, None if sub in here else stored
