"""Decoded values between commits.

An *entry* is one stored value, decoded once and kept as a live object: a ValueState's value, one entry of a map, one
item of a list, one timer. *Cells* are the entries of one state in one task: a bounded cache over the store. Entries
that are dirty (changed since the last commit), or frozen into a commit that the store does not have yet, are never
evicted, so a read always returns the newest value: from the cache, else from the store.

A handler writes directly into the cells, and its *journal* records how to undo that. If it suspends, its changes move
to *private cells* that other handlers do not see, and are merged when it finishes: a commit in between contains
finished records only.

Mutable values are encoded when the handler that accessed them finishes. That detects mutations in place, attributes an
unencodable value to the right record, and keeps the bytes to roll back to if the next handler fails. Immutable values
are encoded once per commit, however often they were replaced. If one of them cannot be encoded, the commit fails; the
task is then reopened with `check_encoding`: its journals encode every changed value when a handler finishes, which
attributes the failure to a record.
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
    """In a journal: the old value is the entry's `raw`."""


ABSENT: Final = Absent.ABSENT
_IN_RAW: Final = Absent.IN_RAW
_FREED_AT_ONCE: Final = 4000
"""Minimum of evicted entries that are freed at once."""


class _Hot(Struct, eq=False, gc=False):
    """The fields of an entry that every record accesses. Fields of a base class come first in memory, and so share
    cache lines: with 100 k entries none is in the processor's cache."""

    key: bytes
    store_key: bytes
    value: Any
    changed: int
    """The value of `Cells.commit_count` at its last change; 0: never changed."""


class Entry(_Hot, eq=False, gc=False):
    """One live value. Two fields are for mutable types: `raw`, the bytes of the last finished value, and `made`, the
    bytes of a default that a handler got as the value, until that handler ends.

    A Struct is created four times as fast as a plain object, and the garbage collector need not track it, which would
    traverse 100 k of them repeatedly: encodable values have no cycles."""

    sub: bytes = b""
    raw: bytes | None = None
    expires: int = 0
    made: bytes | None = None


class _Over(bytes):
    """The key of a handler that has ended. Looking up an entry with it raises, without a check for running handlers."""

    def __hash__(self) -> int:
        raise HandlerOverError


OVER: Final = _Over()


class Journal:
    """The undo log of the running handler."""

    __slots__ = ("_check_encoding", "_now", "_watermark", "checks", "key", "timestamp", "undo")

    def __init__(self, now: Callable[[], int], watermark: Callable[[], int], *, check_encoding: bool = False) -> None:
        """`check_encoding`: when a handler finishes, immutable values are encoded, too, to check that they can be."""
        self._check_encoding = check_encoding
        self.undo: list[tuple[Entry, Any, int, Cells]] = []
        """Entry, old value, old expiry, cells. Always the same list object."""
        self.checks: list[Callable[[], None]] = []
        """Called when the handler ends; a check that fails raises an EncodeError."""
        self.key = b""
        self.timestamp = 0
        self._now, self._watermark = now, watermark

    def time(self, ttl: TTL) -> int:
        return self._now() if ttl.time == "processing" else max(self.timestamp, self._watermark())

    def settle(self) -> None:
        """The handler has finished: keep its changes. EncodeError: a value cannot be stored; roll back."""
        for check in self.checks:
            check()
        touched = {entry: cells for entry, before, _, cells in self.undo if before is _IN_RAW}
        # All are encoded before the first is kept, so that a failure changes nothing.
        encoded = [(entry, cells.encoded(entry), cells) for entry, cells in touched.items()]
        if self._check_encoding:
            for entry, before, _, cells in self.undo:
                if before is not _IN_RAW:
                    cells.encoded(entry)
        for entry, raw, cells in encoded:
            cells.keep(entry, raw, self)
        self.undo.clear()
        self.checks.clear()

    def rollback(self) -> None:
        """The handler has failed: undo its changes."""
        for entry, before, expires, cells in reversed(self.undo):
            entry.expires, entry.made = expires, None
            entry.value = cells.decode(entry.raw) if before is _IN_RAW else before
        self.undo.clear()


class Place(Protocol):
    """From a key to the prefix of its store keys. DataError: the key does not belong to this task."""

    def __call__(self, key: bytes, /) -> bytes: ...

    def many(self, keys: Sequence[bytes], /) -> list[bytes]: ...


class Cells:
    """The entries of one state in one task. `ValueCells` have one per key, `MapCells` any number."""

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
        """`largest`: limit of a value in bytes, from the log."""
        self.store, self.codec, self.base, self.ttl, self.default = store, codec, base, ttl, default
        self.largest = largest
        self.mutable = not codec.immutable
        self._sized = codec.type in (str, bytes)
        self.plain = codec.immutable and ttl is None and not self._sized
        """Immutable, without expiry, and small: the fast path applies."""
        constant = self.plain and (default is None or default.factory is None)
        self.known_default = (None if default is None else default.value) if constant else ABSENT
        """The value of absent entries, if it is a constant."""
        self.dirty: list[Entry] = []
        """Entries changed since the last commit, without duplicates, by their `changed`."""
        self.commit_count = 1
        """Incremented by every commit."""
        self.loaded = 0
        """Entries loaded since the last rotation."""
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

    # -- accesses and changes by a handler ---------------------------------------------------------------------------
    def enter(self, entry: Entry, journal: Journal) -> None:
        """A handler is about to access this entry for the first time."""
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
            self.mark_dirty(entry)

    def mark_dirty(self, entry: Entry) -> None:
        """Mark the entry as dirty."""
        if entry.changed != self.commit_count:
            entry.changed = self.commit_count
            self.dirty.append(entry)

    def present(self, entry: Entry) -> bool:
        """Whether there is a value; an unchanged default does not count."""
        if entry.value is ABSENT:
            return False
        return entry.made is None or self.encoded(entry) != entry.made

    def missing(self, entry: Entry) -> Any:
        """The value of an absent entry. A mutable default becomes the live value, and is kept if the handler mutates
        it."""
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
        if entry.changed != self.commit_count:
            entry.changed = self.commit_count
            self.dirty.append(entry)
        if self.ttl is not None:
            entry.expires = journal.time(self.ttl) + self.ttl.ms

    def _remember(self, entry: Entry, journal: Journal) -> None:
        if not self.mutable:  # for mutable ones, `enter` has done it
            journal.undo.append((entry, entry.value, entry.expires, self))

    def encoded(self, entry: Entry) -> bytes | None:
        if entry.value is ABSENT:
            return None
        raw = self.codec.encode(entry.value)
        self._check_size(entry, len(raw))
        return raw

    def _check_size(self, entry: Entry, size: int) -> None:
        """Raised here, the error policy applies to the record; later, the whole commit would fail."""
        if size + len(entry.store_key) + 100 > self.largest:  # with the overhead of a log record
            raise RecordTooLargeError(f"the state of key {entry.key[:80]!r}", size, self.largest)

    def keep(self, entry: Entry, raw: bytes | None, journal: Journal) -> None:
        """A handler that has accessed this entry has finished; `raw` is the encoded value."""
        if entry.made is not None:
            if raw == entry.made:  # a default that was not mutated
                entry.value, raw = ABSENT, None
            entry.made = None
        if raw == entry.raw:
            return
        entry.raw = raw
        self.mark_dirty(entry)
        if self.ttl is not None:
            entry.expires = journal.time(self.ttl) + self.ttl.ms

    # -- commits -----------------------------------------------------------------------------------------------------
    def freeze(self, changes: Changes) -> None:
        """Freeze the dirty entries as the contents of a commit."""
        changes.values += self._plain_values() if self.plain else [self._stored(entry) for entry in self.dirty]
        changes.places += [entry.store_key for entry in self.dirty]
        self.dirty = []
        self.commit_count += 1

    def _plain_values(self) -> list[bytes | None]:
        """Encodes without a Python call per entry; on a failure, the slow path finds the entry."""
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
        """Evict entries that were not accessed since the last rotation. Only when the store has all frozen entries."""
        raise NotImplementedError

    def _drop(self, generation: dict[bytes, Any]) -> None:
        """Entries are freed in pieces: freeing 100 k at once would block the event loop for 20 ms."""
        self._dropped, self._piece = generation, max(_FREED_AT_ONCE, len(generation) // 8)

    def free_evicted(self) -> None:
        """Free the next piece of the evicted entries."""
        dropped = self._dropped
        for _ in range(min(len(dropped), self._piece)):
            dropped.popitem()

    def sweep(self, span: tuple[bytes, bytes], most: int, now: int, busy: Callable[[bytes], bool]) -> int:
        """Check the next `most` stored entries of `span`; mark the expired ones for removal. Returns their number."""
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
        """A sweep is under way."""
        return bool(self._swept_to)

    def _expire(self, store_key: bytes, now: int, busy: Callable[[bytes], bool]) -> Iterator[bytes]:
        """The key, if its entry is removed."""
        _, _, key, sub = parse_keyed(store_key)
        if busy(key):
            return
        entry = self.entry(key, sub)
        if entry.value is not ABSENT and entry.expires <= now:
            entry.value, entry.raw = ABSENT, None
            self.mark_dirty(entry)
            yield key
