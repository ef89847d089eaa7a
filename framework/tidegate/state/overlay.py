"""Live values between commits.

An *entry* is one stored value, decoded once and kept as a live object: a ValueState's value, one entry of a map, one
item of a list, one timer. *Cells* hold the entries of one state in one task: a bounded cache over the store. What is
dirty (changed since the last commit), or frozen into a commit that the store does not have yet, is never evicted, so
a read always sees the newest value: cache, else store.

A handler writes straight into the cells and leaves a *journal* of how to take that back. If it suspends, what it did
moves into *private cells* that nobody else sees, and is merged when it finishes, so that a commit in between holds
finished records only.

Values that can change in place are encoded when the handler that touched them finishes. That finds changes nobody
announced, blames an unencodable value on the right record, and leaves the bytes to go back to if the next handler
fails. Values that cannot are encoded once per commit, however often they were replaced. If one of those cannot be
encoded, the commit fails as a whole; the task is then opened again, and its journals are *careful*: they encode
everything when a handler finishes, so that the record at fault is found.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import merge as merge_sorted
from operator import itemgetter
from typing import Any, Final

from msgspec import Struct

from tidegate.codecs import Codec
from tidegate.errors import DataError, EncodeError, HandlerOverError, RecordTooLargeError
from tidegate.state.base import Changes, Store
from tidegate.state.kinds import TTL, Default
from tidegate.state.layout import EXPIRY, parse_keyed, prefix_range

__all__ = ("ABSENT", "Cells", "Entry", "Journal", "ListCells", "MapCells", "PrivateCells", "ValueCells")


class Absent(enum.Enum):
    ABSENT = enum.auto()
    IN_RAW = enum.auto()
    """In a journal: the value before is what the entry's `raw` says."""


ABSENT: Final = Absent.ABSENT
_IN_RAW: Final = Absent.IN_RAW
_AT_ONCE: Final = 4000
"""How many entries are given back to the memory at once, at least."""
_SAMPLE: Final = 16
"""How much is left to handlers, to see if they look at it."""


class _Hot(Struct, eq=False, gc=False):
    """The fields of an entry that every record needs. Those of a base class come first in memory, and so lie together:
    with 100 k entries none is in the processor's cache."""

    key: bytes
    store_key: bytes
    value: Any
    dirty: bool


class Entry(_Hot, eq=False, gc=False):
    """One live value. Two fields are for types that can change in place: `raw`, the bytes of the last finished value,
    and `made`, the bytes of the default that a handler was given as the value, until that handler ends.

    A Struct, since it is made four times as fast as an object of our own; and the garbage collector, which would look
    through 100 k of them again and again, need not know of it: values that can be encoded hold no cycles."""

    sub: bytes = b""
    raw: bytes | None = None
    expires: int = 0
    made: bytes | None = None


class _Over(bytes):
    """The key of a handler that has ended. No entry can be looked up under it, which costs those that run nothing."""

    def __hash__(self) -> int:
        raise HandlerOverError


OVER: Final = _Over()


class Journal:
    """What the handler that is running has touched."""

    __slots__ = ("_careful", "_now", "_watermark", "key", "timestamp", "undo")

    def __init__(self, now: Callable[[], int], watermark: Callable[[], int], *, careful: bool = False) -> None:
        """`careful`: values that cannot change in place are encoded when they were assigned, too, to see if they can
        be."""
        self._careful = careful
        self.undo: list[tuple[Entry, Any, int, Cells]] = []
        """Always the same list."""
        self.key = b""
        self.timestamp = 0
        self._now, self._watermark = now, watermark

    def time(self, ttl: TTL) -> int:
        return self._now() if ttl.time == "processing" else max(self.timestamp, self._watermark())

    def settle(self) -> None:
        """The handler finished: keep what it did. EncodeError: one of its values cannot be stored; roll back."""
        touched = {entry: cells for entry, before, _, cells in self.undo if before is _IN_RAW}
        # All are encoded before the first is kept: if one cannot be, none was.
        encoded = [(entry, cells.encoded(entry), cells) for entry, cells in touched.items()]
        if self._careful:
            for entry, before, _, cells in self.undo:
                if before is not _IN_RAW:
                    cells.encoded(entry)
        for entry, raw, cells in encoded:
            cells.keep(entry, raw, self)
        self.undo.clear()

    def rollback(self) -> None:
        """The handler failed: everything is as before it."""
        for entry, before, expires, cells in reversed(self.undo):
            entry.expires, entry.made = expires, None
            entry.value = cells.decode(entry.raw) if before is _IN_RAW else before
        self.undo.clear()


class Cells:
    """The entries of one state in one task. `ValueCells` hold one per key, `MapCells` any number."""

    def __init__(
        self,
        store: Store,
        codec: Codec[Any],
        base: Callable[[bytes], bytes],
        *,
        ttl: TTL | None = None,
        default: Default | None = None,
        largest: int = 8 << 20,
    ) -> None:
        """`largest`: how many bytes of a value the log takes."""
        self.store, self.codec, self.base, self.ttl, self.default = store, codec, base, ttl, default
        self.largest = largest
        self.mutable = not codec.immutable
        self._sized = codec.type in (str, bytes)
        self.plain = codec.immutable and ttl is None and not self._sized
        """Neither changes in place nor expires, and is small: the short way is enough."""
        self.dirty: list[Entry] = []
        """Changed since the last commit; each once, as its own flag says."""
        self.loaded = 0
        """How many entries came into memory since the last rotation."""
        self._swept_to = b""
        self._dropped: dict[bytes, Any] = {}
        self._piece = 0

    # -- reading -----------------------------------------------------------------------------------------------------
    def entry(self, key: bytes, sub: bytes = b"") -> Entry:
        raise NotImplementedError

    def _load(self, key: bytes, sub: bytes, store_key: bytes, stored: bytes | None) -> Entry:
        self.loaded += 1
        if stored is None:
            return Entry(key, store_key, ABSENT, False, sub)
        expires = 0
        if self.ttl is not None:
            (expires,), stored = EXPIRY.unpack_from(stored), stored[8:]
        return Entry(key, store_key, self.codec.decode(stored), False, sub, stored if self.mutable else None, expires)

    def decode(self, raw: bytes | None) -> Any:
        return ABSENT if raw is None else self.codec.decode(raw)

    # -- a handler's doings ------------------------------------------------------------------------------------------
    def enter(self, entry: Entry, journal: Journal) -> None:
        """A handler is about to see this entry, for the first time in its run."""
        if self.mutable:
            journal.undo.append((entry, _IN_RAW, entry.expires, self))
        if self.ttl is not None and entry.value is not ABSENT:
            self._age(entry, self.ttl, journal)

    def _age(self, entry: Entry, ttl: TTL, journal: Journal) -> None:
        now = journal.time(ttl)
        if entry.expires <= now:
            self.assign(entry, ABSENT, journal)
        elif ttl.on == "access":
            self._remember(entry, journal)
            entry.expires = now + ttl.ms
            self.mark(entry)

    def mark(self, entry: Entry) -> None:
        """It differs from what was committed."""
        if not entry.dirty:
            entry.dirty = True
            self.dirty.append(entry)

    def present(self, entry: Entry) -> bool:
        """There is a value; a default that was looked at does not count."""
        if entry.value is ABSENT:
            return False
        return entry.made is None or self.encoded(entry) != entry.made

    def missing(self, entry: Entry) -> Any:
        """What an absent value reads as. A default that can change in place becomes the live value, to be kept if it
        does."""
        if self.default is None:
            return None
        value = self.default.make()
        if self.mutable:
            entry.value = value
            entry.made = self.encoded(entry)
        return value

    def assign(self, entry: Entry, value: Any, journal: Journal) -> None:
        if self._sized and value is not ABSENT:
            self._check_size(entry, len(value))
        self._remember(entry, journal)
        entry.value, entry.made = value, None
        if not entry.dirty:
            entry.dirty = True
            self.dirty.append(entry)
        if self.ttl is not None:
            entry.expires = journal.time(self.ttl) + self.ttl.ms

    def _remember(self, entry: Entry, journal: Journal) -> None:
        if not self.mutable:  # else `enter` has done it
            journal.undo.append((entry, entry.value, entry.expires, self))

    def encoded(self, entry: Entry) -> bytes | None:
        if entry.value is ABSENT:
            return None
        raw = self.codec.encode(entry.value)
        self._check_size(entry, len(raw))
        return raw

    def _check_size(self, entry: Entry, size: int) -> None:
        """Here the record that made it too large can still be given up; the commit could only fail as a whole."""
        if size + len(entry.store_key) + 100 > self.largest:  # and what the log adds to a record
            raise RecordTooLargeError(f"the state of key {entry.key[:80]!r}", size, self.largest)

    def keep(self, entry: Entry, raw: bytes | None, journal: Journal) -> None:
        """A handler that has seen this entry is done; `raw` is what the value has become."""
        if entry.made is not None:
            if raw == entry.made:  # a default that was looked at, not changed
                entry.value, raw = ABSENT, None
            entry.made = None
        if raw == entry.raw:
            return
        entry.raw = raw
        self.mark(entry)
        if self.ttl is not None:
            entry.expires = journal.time(self.ttl) + self.ttl.ms

    # -- commits -----------------------------------------------------------------------------------------------------
    def freeze(self, changes: Changes) -> None:
        """Fix what is dirty as the contents of a commit."""
        changes.values += self._plain_values() if self.plain else [self._stored(entry) for entry in self.dirty]
        changes.places += [entry.store_key for entry in self.dirty]
        for entry in self.dirty:
            entry.dirty = False
        self.dirty = []

    def _plain_values(self) -> list[bytes | None]:
        """Without a call of ours for each; one that cannot be encoded is looked for the slow way."""
        encode = self.codec.encode_raw
        try:
            return [None if entry.value is ABSENT else encode(entry.value) for entry in self.dirty]
        except self.codec.encode_failures:
            return [self._stored(entry) for entry in self.dirty]

    def _stored(self, entry: Entry) -> bytes | None:
        if entry.value is ABSENT:
            return None
        raw = entry.raw
        if raw is None or not self.mutable:
            try:
                raw = self.codec.encode(entry.value)
            except EncodeError as error:
                raise EncodeError(f"the state of key {entry.key!r} cannot be stored: {error}") from error
        return raw if self.ttl is None else EXPIRY.pack(entry.expires) + raw

    def rotate(self) -> None:
        """Let go of what was not touched since the last time. Only when the store has all that was frozen."""
        raise NotImplementedError

    def _drop(self, generation: dict[bytes, Any]) -> None:
        """By and by: to give 100 k entries back to the memory at once would hold the loop for 20 ms."""
        self._dropped, self._piece = generation, max(_AT_ONCE, len(generation) // 8)

    def give_back(self) -> None:
        """The next piece of what was dropped."""
        dropped = self._dropped
        for _ in range(min(len(dropped), self._piece)):
            dropped.popitem()

    def sweep(self, span: tuple[bytes, bytes], most: int, now: int, busy: Callable[[bytes], bool]) -> int:
        """Look at the next `most` stored entries of `span`; mark the expired ones for removal. Returns how many."""
        start, self._swept_to = max(self._swept_to, span[0]), b""
        removed: list[bytes] = []
        for seen, (store_key, stored) in enumerate(self.store.scan(start, span[1])):
            if seen >= most:
                self._swept_to = store_key
                break
            if EXPIRY.unpack_from(stored)[0] <= now:
                removed += self._expire(store_key, now, busy)
        self._after_sweep(set(removed))
        return len(removed)

    def _after_sweep(self, keys: set[bytes]) -> None:
        """Entries of these keys were removed."""

    @property
    def sweeping(self) -> bool:
        """A sweep is under way: it has not come to the end yet."""
        return bool(self._swept_to)

    def _expire(self, store_key: bytes, now: int, busy: Callable[[bytes], bool]) -> Iterator[bytes]:
        """The key, if its entry is removed."""
        _, _, key, sub = parse_keyed(store_key)
        if busy(key):
            return
        entry = self.entry(key, sub)
        if entry.value is not ABSENT and entry.expires <= now:
            entry.value, entry.raw = ABSENT, None
            self.mark(entry)
            yield key


class ValueCells(Cells):
    """One entry per key.

    Two generations: what was not touched during a whole one is dropped. Cheaper per read than keeping an LRU's
    order."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._young: dict[bytes, Entry] = {}
        self._old: dict[bytes, Entry] = {}
        self._gathers = 0
        self._left = self._asked = 0
        """What was left to handlers to look at, and how much of it they did."""
        self._eager = False

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

        To find many before the first is used takes half the time: the processor waits for the memory of several at
        once. What is not at hand is loaded, if handlers do look at what they get: every 16th time some of it is left
        to them, to see."""
        find = self._young.get
        entries = [find(key) for key in keys]  # type: ignore[arg-type]
        if all(entries):
            return entries
        missing = [key for key, entry in zip(keys, entries, strict=True) if entry is None and key is not None]
        if self._left:
            self._eager, self._left = 2 * self._asked >= self._left, 0
        self._gathers += 1
        if self._gathers % 16 == 1:
            self._left, self._asked = len(missing[:_SAMPLE]), 0
            del missing[:_SAMPLE]
        if self._eager:
            self.load(missing)
            entries = [entry or find(key) for key, entry in zip(keys, entries, strict=True)]  # type: ignore[arg-type]
        return entries

    def load(self, keys: Iterable[bytes]) -> None:
        """Bring plain entries of these keys into memory, with one call of the store: that takes less than one for each.
        What does not belong here, or cannot be read, is left out; `entry` says why, if it is looked at."""
        young, old = self._young, self._old
        wanted = dict.fromkeys(keys)
        if old:
            known = [key for key in wanted if key in old]
            for key in known:
                young[key] = old.pop(key)
                del wanted[key]
        places = self._places(wanted)
        decode, failures = self.codec.decode_raw, self.codec.decode_failures
        for key, place, stored in zip(places, places.values(), self.store.get_many([*places.values()]), strict=True):
            try:
                young[key] = Entry(key, place, ABSENT if stored is None else decode(stored), False)
            except failures:
                continue
        self.loaded += len(places)

    def _places(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        """Where those of these keys that belong here lie in the store."""
        base, places = self.base, dict[bytes, bytes]()
        for key in keys:
            try:
                places[key] = base(key)
            except DataError:
                continue
        return places

    def rotate(self) -> None:
        self._drop(self._old)
        self._old, self._young = self._young, {entry.key: entry for entry in self.dirty}
        self.loaded = len(self._young)


class MapCells(Cells):
    """Any number of entries per key, by subkey. A key's entries come and go together."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._young: dict[bytes, dict[bytes, Entry]] = {}
        self._old: dict[bytes, dict[bytes, Entry]] = {}

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

    def subkeys(self, key: bytes) -> Iterator[tuple[bytes, bytes | None]]:
        """All subkeys that may be there, in order, each with its stored bytes if only the store knows it."""
        base = self.base(key)
        stored = ((store_key[len(base) :], value) for store_key, value in self.store.scan(*prefix_range(base)))
        return _either(self.slot(key), stored)

    def rotate(self) -> None:
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


class PrivateCells(MapCells):
    """What a suspended handler sees and changes: its own copies, over cells that go on without it."""

    def __init__(self, shared: Cells) -> None:
        super().__init__(
            shared.store, shared.codec, shared.base, ttl=shared.ttl, default=shared.default, largest=shared.largest
        )
        self.shared = shared

    def entry(self, key: bytes, sub: bytes = b"") -> Entry:
        slot = self.slot(key)
        entry = slot.get(sub)
        if entry is None:
            entry = slot[sub] = self._copy(self.shared.entry(key, sub))
        return entry

    def adopt(self, key: bytes, sub: bytes, stored: bytes) -> Entry:
        return self.entry(key, sub)

    def _copy(self, entry: Entry) -> Entry:
        value = self.decode(entry.raw) if self.mutable else entry.value
        return Entry(entry.key, entry.store_key, value, False, entry.sub, entry.raw, entry.expires)

    def subkeys(self, key: bytes) -> Iterator[tuple[bytes, bytes | None]]:
        assert isinstance(self.shared, MapCells)  # noqa: S101  only maps and lists ask
        return _either(self.slot(key), self.shared.subkeys(key))

    def take_over(self, entry: Entry) -> Entry:
        """A copy of a shared entry as the handler left it, to be taken before the shared one is rolled back."""
        mine = self.slot(entry.key)[entry.sub] = Entry(
            entry.key, entry.store_key, entry.value, False, entry.sub, entry.raw, entry.expires
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
    here: dict[bytes, Entry], below: Iterable[tuple[bytes, bytes | None]]
) -> Iterator[tuple[bytes, bytes | None]]:
    """The subkeys of both, in order, once; with stored bytes only for those that are not here."""
    last: bytes | None = None
    ours: Iterable[tuple[bytes, bytes | None]] = [(sub, None) for sub in sorted(here)]
    for sub, stored in merge_sorted(ours, below, key=itemgetter(0)):
        if sub != last:
            last = sub
            yield sub, None if sub in here else stored
