"""The kinds of cells: by key, by key and subkey, items of lists; and a suspended handler's own. See `overlay`."""

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
"""How many entries of a map are brought to a handler in a thread at once."""
_SAMPLE: Final = 16
"""How much is left to handlers, to see if they look at it."""
_FEW: Final = 64
"""So many new subkeys are put into a known order one by one; more are sorted with it."""


def _generation(entries: Iterable[Entry]) -> dict[bytes, Entry]:
    """By key. To index it with a key that is not there returns None, and leaves that there."""
    return defaultdict(type(None), {entry.key: entry for entry in entries})  # type: ignore[arg-type]


class ValueCells(Cells):
    """One entry per key.

    Two generations: what was not touched during a whole one is dropped. Cheaper per read than keeping an LRU's
    order."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._young = _generation(())
        self._old: dict[bytes, Entry] = {}
        self.rotations = 0
        """How often something was let go."""
        self._gathers = 0
        self._looked = self._missed = 0
        """Of late: how many keys were looked for, and how many of them were not at hand."""
        self._left = self._asked = 0
        """What was left to handlers to look at, and how much of it they did."""
        self._eager = False
        self._at_hand = False
        """Most of what was gathered last was."""

    def entry(self, key: bytes, sub: bytes = b"") -> Entry:
        entry = self._young.get(key)
        if entry is None:
            self._asked += 1
            entry = self._old.pop(key, None)
            if entry is None:
                store_key = self.base(key)
                entry = self._load(key, b"", store_key, self.store.get(store_key))
            self._young[key] = entry
        return entry

    def gather(self, keys: Sequence[bytes | None]) -> Sequence[Entry | None]:
        """The entries of the keys that come next, those that are at hand. Good until the event loop turns.

        What is not at hand is loaded, if handlers do look at what they get: every 16th time some of it is left to
        them, to see."""
        found = self._find(keys)
        self._looked += len(keys)
        if all(found):
            self._at_hand = True
            return found
        entries, young = [*found], self._young
        gaps = [index for index, entry in enumerate(entries) if entry is None]
        self._at_hand = 4 * len(gaps) < len(keys)
        missing = dict.fromkeys([key for index in gaps if (key := keys[index]) is not None])
        self._missed += len(gaps)
        if self._left:
            self._eager, self._left = 2 * self._asked >= self._left, 0
        self._gathers += 1
        if self._gathers % 16 == 1:
            sample = [*islice(missing, _SAMPLE)]
            self._left, self._asked = len(sample), 0
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
        """Those that are at hand, None for the others. For some of those None is left in their place, too.

        To find many before the first is used takes half the time: the processor waits for the memory of several at
        once. The less there is to do between two of them, the more of them: with all hashes known, and no call for
        each key, it takes two thirds of what `get` takes (0.30 µs against 0.45, with 100 k entries)."""
        if self._at_hand and len(keys) > 1:
            wanted = (*keys,)
            hash(wanted)  # bytes remember theirs
            return itemgetter(*wanted)(self._young)  # type: ignore[no-any-return]
        return [*map(self._young.get, keys)]  # type: ignore[arg-type]

    def load(self, keys: Sequence[bytes]) -> None:
        """Bring plain entries of these keys, each once, into memory, with one call of the store: that takes less than
        one for each. What does not belong here, or cannot be read, is left out; `entry` says why, if it is looked
        at."""
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

    # -- what is read ahead ------------------------------------------------------------------------------------------
    @property
    def often_missing(self) -> bool:
        """Whether much of what was gathered of late was not at hand, and handlers do look at it. Asking begins anew."""
        often = self._eager and 4 * self._missed >= self._looked > 0
        self._looked = self._missed = 0
        return often

    def not_here(self, keys: Iterable[bytes | None]) -> list[bytes]:
        """Those of these keys that are not in memory, each once."""
        young, old = self._young, self._old
        missing = dict.fromkeys([key for key in keys if key not in young])
        return [key for key in missing if key is not None and key not in old]

    def take_in(self, keys: Sequence[bytes], places: Sequence[bytes], found: Sequence[bytes | None]) -> None:
        """What the store held when it was asked for these: they come into memory, unless they are there by now."""
        young, old = self._young, self._old
        news = [row for row in zip(keys, places, found, strict=True) if row[0] not in young and row[0] not in old]
        if news:
            self._keep(*zip(*news, strict=True))

    def places(self, keys: Sequence[bytes]) -> tuple[Sequence[bytes], list[bytes]]:
        """Those of these keys that belong here, and where they lie in the store."""
        try:
            return keys, self.base.many(keys)
        except DataError:
            return self._those_that_belong(keys)

    def _those_that_belong(self, keys: Sequence[bytes]) -> tuple[list[bytes], list[bytes]]:
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
    """Any number of entries per key, by subkey. A key's entries come and go together."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._young: dict[bytes, dict[bytes, Entry]] = {}
        self._old: dict[bytes, dict[bytes, Entry]] = {}
        self._orders: dict[bytes, list[bytes]] = {}
        """The subkeys of a slot in order, of slots that were looked through."""

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
        """The entry of bytes that a scan has just returned, unless a newer one is here."""
        slot = self.slot(key)
        entry = slot.get(sub)
        if entry is None:
            entry = slot[sub] = self._load(key, sub, self.base(key) + sub, stored)
        return entry

    def subkeys(
        self, key: bytes, low: bytes = b"", high: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes | None]]:
        """The subkeys from `low` up to but not including `high` that may be there, in order, each with its stored
        bytes if only the store knows it. The store is read as far as the iteration goes."""
        base = self.base(key)
        end = prefix_range(base)[1] if high is None else base + high
        scan = self.store.scan(base + low, end, reverse=reverse)
        stored = ((store_key[len(base) :], value) for store_key, value in scan)
        return _either(self.slot(key), self._here(key, low, high), stored, reverse=reverse)

    def _here(self, key: bytes, low: bytes, high: bytes | None) -> list[bytes]:
        """The subkeys in memory between the bounds, in order. A slot only ever grows, at its end: new ones are put into
        the known order, so that a range of a large map does not sort all of it each time."""
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
        return order[bisect_left(order, low) : None if high is None else bisect_left(order, high)]

    def rotate(self) -> None:
        self._orders = {}
        self._drop(self._old)
        self._old, self._young, self.loaded = self._young, {}, len(self.dirty)
        for key in {entry.key for entry in self.dirty}:
            self._young[key] = self._old.pop(key)


class ListCells(MapCells):
    """The items of lists, by their numbers. Where a list begins and ends is in `bounds`."""

    def __init__(self, bounds: ValueCells, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._bounds = bounds

    def _after_sweep(self, keys: set[bytes]) -> None:
        """The bounds of a list that has become empty go, too."""
        for key in keys:
            entries = (self.entry(key, sub) for sub, _ in self.subkeys(key))
            if all(entry.value is ABSENT for entry in entries):
                bounds = self._bounds.entry(key)
                bounds.value = ABSENT
                self._bounds.mark(bounds)


Ask = Callable[[Callable[[], Any]], Any]
"""Has a question about shared cells answered, in the thread to which they belong."""


def _directly(question: Callable[[], Any]) -> Any:
    return question()


class PrivateCells(MapCells):
    """What one invocation sees and changes while others go on: its own copies, over cells that are shared."""

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
        """Take over what is shared, unless there is an own copy already."""
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
        assert isinstance(self.shared, MapCells)  # noqa: S101  only maps and lists ask
        if self._page == 1:
            shared = self.shared.subkeys(key, low, high, reverse=reverse)
        else:
            shared = self._pages(key, partial(self.shared.subkeys, key, low, high, reverse=reverse))
        return _either(self.slot(key), self._here(key, low, high), shared, reverse=reverse)

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

    def take_over(self, entry: Entry) -> Entry:
        """A copy of a shared entry as the handler left it, to be taken before the shared one is rolled back."""
        mine = self.slot(entry.key)[entry.sub] = Entry(
            entry.key, entry.store_key, entry.value, 0, entry.sub, entry.raw, entry.expires
        )
        mine.made = entry.made
        return mine

    def merge(self) -> None:
        """The handler finished: what it changed becomes everybody's."""
        for mine in self.dirty:
            theirs = self.shared.entry(mine.key, mine.sub)
            theirs.value, theirs.raw, theirs.expires = mine.value, mine.raw, mine.expires
            self.shared.mark(theirs)


def _either(
    here: dict[bytes, Entry], subs: list[bytes], below: Iterable[tuple[bytes, bytes | None]], *, reverse: bool
) -> Iterator[tuple[bytes, bytes | None]]:
    """The subkeys of both, in order, once; with stored bytes only for those that are not here."""
    last: bytes | None = None
    ours: Iterable[tuple[bytes, bytes | None]] = [(sub, None) for sub in (reversed(subs) if reverse else subs)]
    for sub, stored in merge_sorted(ours, below, key=itemgetter(0), reverse=reverse):
        if sub != last:
            last = sub
            yield sub, None if sub in here else stored
