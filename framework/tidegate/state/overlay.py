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
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Protocol

from msgspec import Struct

from tidegate.codecs import Codec
from tidegate.errors import EncodeError, HandlerOverError, RecordTooLargeError
from tidegate.state.base import Changes, Store
from tidegate.state.kinds import TTL, Default
from tidegate.state.layout import EXPIRY, parse_keyed

__all__ = ("ABSENT", "OVER", "Cells", "Entry", "Journal", "Place")


class Absent(enum.Enum):
    ABSENT = enum.auto()
    IN_RAW = enum.auto()
    """In a journal: the value before is what the entry's `raw` says."""


ABSENT: Final = Absent.ABSENT
_IN_RAW: Final = Absent.IN_RAW
_AT_ONCE: Final = 4000
"""How many entries are given back to the memory at once, at least."""


class _Hot(Struct, eq=False, gc=False):
    """The fields of an entry that every record needs. Those of a base class come first in memory, and so lie together:
    with 100 k entries none is in the processor's cache."""

    key: bytes
    store_key: bytes
    value: Any
    changed: int
    """In which stretch between two commits it was last changed: see `Cells.stretch`. 0: never."""


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

    __slots__ = ("_careful", "_now", "_watermark", "checks", "key", "timestamp", "undo")

    def __init__(self, now: Callable[[], int], watermark: Callable[[], int], *, careful: bool = False) -> None:
        """`careful`: values that cannot change in place are encoded when they were assigned, too, to see if they can
        be."""
        self._careful = careful
        self.undo: list[tuple[Entry, Any, int, Cells]] = []
        """Always the same list."""
        self.checks: list[Callable[[], None]] = []
        """What is to be made sure of when the handler ends: each raises an EncodeError if it is not so."""
        self.key = b""
        self.timestamp = 0
        self._now, self._watermark = now, watermark

    def time(self, ttl: TTL) -> int:
        return self._now() if ttl.time == "processing" else max(self.timestamp, self._watermark())

    def settle(self) -> None:
        """The handler finished: keep what it did. EncodeError: one of its values cannot be stored; roll back."""
        for check in self.checks:
            check()
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
        self.checks.clear()

    def rollback(self) -> None:
        """The handler failed: everything is as before it."""
        for entry, before, expires, cells in reversed(self.undo):
            entry.expires, entry.made = expires, None
            entry.value = cells.decode(entry.raw) if before is _IN_RAW else before
        self.undo.clear()


class Place(Protocol):
    """From a key to where its values begin in the store. DataError: it does not belong here."""

    def __call__(self, key: bytes, /) -> bytes: ...

    def many(self, keys: Sequence[bytes], /) -> list[bytes]: ...


class Cells:
    """The entries of one state in one task. `ValueCells` hold one per key, `MapCells` any number."""

    def __init__(
        self,
        store: Store,
        codec: Codec[Any],
        base: Place,
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
        constant = self.plain and (default is None or default.factory is None)
        self.known_default = (None if default is None else default.value) if constant else ABSENT
        """What absent values read as, if it need not be made for each."""
        self.dirty: list[Entry] = []
        """Changed since the last commit; each once, as its own `changed` says."""
        self.stretch = 1
        """Grows with every commit."""
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
            return Entry(key, store_key, ABSENT, 0, sub)
        expires = 0
        if self.ttl is not None:
            (expires,), stored = EXPIRY.unpack_from(stored), stored[8:]
        return Entry(key, store_key, self.codec.decode(stored), 0, sub, stored if self.mutable else None, expires)

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
        if entry.changed != self.stretch:
            entry.changed = self.stretch
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
        if entry.changed != self.stretch:
            entry.changed = self.stretch
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
        self.dirty = []
        self.stretch += 1

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
