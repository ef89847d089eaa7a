"""What the engine needs of a local store: an ordered map of bytes to bytes, a position, nothing more.

A store is a cache of its changelog. It may lag behind it, never lead it: `apply` is called with what the log has
already committed, and everything in one call becomes visible, and survives a crash, together or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

__all__ = ("Change", "Store", "StorePosition")

Change = tuple[bytes, bytes | None]
"""A key and its new value; None removes it."""


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

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Keys from `start` up to but not including `end`, in order, as they are now: later changes do not show."""

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
