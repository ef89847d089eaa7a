"""What the engine needs of a local store: an ordered map of bytes to bytes, a position, nothing more.

A store is a cache of its changelog. It may lag behind it, never lead it: `apply` is called with what the log has
already committed, and everything in one call becomes visible, and survives a crash, together or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

__all__ = ("Change", "Changes", "SnapshotStore", "Store", "StorePosition")

Change = tuple[bytes, bytes | None]
"""A key and its new value; None removes it."""


class Changes:
    """Many changes, as two columns: a commit has thousands, and pairs would have to be made, kept and thrown away for
    each, as records for the log once more (measured: 1.1 µs for each against 0.7)."""

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
    """How far a store has come."""

    lineage: str
    """Which life of the changelog this is: a store of another one is worthless."""
    offset: int
    """The changelog position from which a replay must go on."""
    written_ms: int
    """When it was last written: too long ago, and tombstones may be missing."""


class Store(Protocol):
    @property
    def position(self) -> StorePosition | None:
        """None: the store is empty."""

    def get(self, key: bytes) -> bytes | None: ...

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """What `get` returns for each of them, in one call."""

    def scan(self, start: bytes, end: bytes, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Keys from `start` up to but not including `end`, in order, as they are now: later changes do not show.
        `reverse`: the last one first."""

    def approximate_entries(self) -> int:
        """About how many keys it holds. Cheap: nothing is read for it."""

    def apply(self, changes: Iterable[Change], position: StorePosition) -> None:
        """Write these changes and the position, atomically. Later changes of the same key win."""

    def flush(self) -> None:
        """Make all that was applied survive a crash. Safe to call from another thread, and slow."""

    def wipe(self) -> None:
        """Remove everything, position included."""

    def close(self) -> None:
        """Flush, and let go of the files."""


class SnapshotStore(Store, Protocol):
    """A store of which a snapshot can be taken while it is written to."""

    def pass_on(self) -> bool:
        """Do a piece of what the store has put off, if any is due before the next `apply`, which otherwise does it all.
        False: no more is due."""

    def hold(self) -> None:
        """The next snapshot is of this moment: what is applied from now on is not in it."""

    def snapshot(self, directory: Path) -> None:
        """Write what the store held at that moment into a new directory, from which a store of the same kind can be
        opened. Safe to call from another thread, and slow. Then, or if it fails, the store is no longer held."""

    @property
    def held(self) -> bool:
        """A snapshot was asked for, and is not written yet."""

    @property
    def flushes(self) -> int:
        """How often all that was applied so far was made to survive a crash: by `flush`, or by a snapshot."""

    def release(self) -> None:
        """Do without the snapshot. Nothing happens if the store is not held."""
