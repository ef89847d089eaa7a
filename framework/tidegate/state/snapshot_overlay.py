"""Changes applied after a snapshot's moment: kept apart from the data of the snapshot, and merged on reads."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

__all__ = ("SnapshotOverlay", "merged")


class SnapshotOverlay(dict[bytes, "bytes | None"]):
    """By key, the newer value; None: it was removed. Ranges use a list of keys that is sorted on demand."""

    _ordered: list[bytes] | None = None

    def between(self, start: bytes, end: bytes) -> list[tuple[bytes, bytes | None]]:
        ordered = self._ordered
        if ordered is None or len(ordered) != len(self):  # keys are only ever added
            ordered = self._ordered = sorted(self)
        return [(key, self[key]) for key in ordered[bisect_left(ordered, start) : bisect_left(ordered, end)]]


def merged(
    older: Iterator[tuple[bytes, bytes]], newer: list[tuple[bytes, bytes | None]], *, reverse: bool = False
) -> Iterator[tuple[bytes, bytes]]:
    """Merges two ordered sequences; of equal keys the newer value is used. `reverse`: `older` is in reverse order."""
    changes = reversed(newer) if reverse else iter(newer)
    change = next(changes, None)
    for key, value in older:
        while change is not None and (change[0] > key if reverse else change[0] < key):
            if change[1] is not None:
                yield change[0], change[1]
            change = next(changes, None)
        if change is None or change[0] != key:
            yield key, value
    while change is not None:
        if change[1] is not None:
            yield change[0], change[1]
        change = next(changes, None)
