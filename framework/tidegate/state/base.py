"""The engine's contract with a local store: an ordered map of bytes to bytes, and a changelog position.

A store is a cache of its changelog. It may lag behind the changelog, but never lead it: `apply` is called with changes
that the log has committed. The changes of one call become visible, and durable, atomically.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

__all__ = ("Change", "Changes", "SnapshotStore", "Store", "StorePosition")

Change = tuple[bytes, bytes | None]
"""A key and its new value; None removes it."""


class Changes:
    """Many changes as two columns: a commit has thousands, and a pair per change, then a record per change for the log,
    would cost more (measured: 1.1 µs per change against 0.7)."""

    __slots__ = ("places", "values")

    def __init__(self, changes: Iterable[Change] = ()) -> None:
        self.places: list[bytes] = []
        """The keys in the store."""
        self.values: list[bytes | None] = []
        self.extend(changes)

    def extend(self, changes: Iterable[Change]) -> None:
        for place, value in changes:
            self.places.append(place)
            self.values.append(value)

    def __len__(self) -> int:
        return len(self.places)

    def __iter__(self) -> Iterator[Change]:
        return zip(self.places, self.values, strict=True)


class StorePosition(NamedTuple):
    """The changelog position of a store."""

    lineage: str
    """Identifies the changelog: a store with another lineage is discarded."""
    offset: int
    """The changelog position from which a recovery replays."""
    written_ms: int
    """The time of the last write: if it is too long ago, the changelog may have lost tombstones since."""


class Store(Protocol):
    @property
    def position(self) -> StorePosition | None:
        """None: the store is empty."""

    def get(self, key: bytes) -> bytes | None: ...

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """`get` for several keys in one call."""

    def scan(self, start: bytes, end: bytes, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """A snapshot of the entries from `start` up to but not including `end`, in order; `reverse`: in reverse
        order."""

    def approximate_entries(self) -> int:
        """The approximate number of keys. Cheap: it reads no entries."""

    def apply(self, changes: Iterable[Change], position: StorePosition) -> None:
        """Write the changes and the position atomically. The last change of a key wins."""

    def flush(self) -> None:
        """Make all applied changes durable. Thread-safe, and slow."""

    def wipe(self) -> None:
        """Remove all entries and the position."""

    def close(self) -> None:
        """Flush, and close the files."""


class SnapshotStore(Store, Protocol):
    """A store that can take a snapshot while changes are applied."""

    def pass_on(self) -> bool:
        """Do a part of the deferred writes that are due before the next `apply`, which otherwise does them all. False:
        none are due."""

    def hold(self) -> None:
        """Fix the contents of the next snapshot: later changes are not in it."""

    def snapshot(self, directory: Path) -> None:
        """Write the held contents into a new directory, from which a store of the same kind can be opened. Then, also
        after a failure, the store is released. Thread-safe, and slow."""

    @property
    def held(self) -> bool:
        """The store is held for a snapshot that is not written yet."""

    @property
    def flushes(self) -> int:
        """The number of times that all applied changes became durable: by `flush`, or by a snapshot."""

    def release(self) -> None:
        """Give up the snapshot, if the store is held."""
