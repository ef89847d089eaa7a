"""The in-memory store: an ordered map, which a crash loses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from struct import Struct
from typing import Final, Self
from weakref import WeakSet

import msgspec
from sortedcontainers import SortedDict

from tidegate.errors import StoreCorruptError
from tidegate.state.base import Change, StorePosition
from tidegate.state.snapshot_overlay import SnapshotOverlay, merged

__all__ = ("MemoryStore",)

_CHUNK: Final = 256
_FIRST_CHUNK: Final = 8
"""Many a scan is followed for a few entries only."""
_FILE: Final = "entries"
_LENGTHS: Final = Struct(">II")
_positions: Final = msgspec.json.Decoder(StorePosition | None)


class MemoryStore:
    """A scan is a snapshot without a copy: before `apply` changes an entry, it saves the old value for open scans.

    While another thread writes a snapshot, the data it reads does not change: newer changes go to an overlay."""

    def __init__(self) -> None:
        self._data: SortedDict[bytes, bytes] = SortedDict()
        self._overlay: SnapshotOverlay | None = None
        """Set while the store is held."""
        self._released = False
        """The snapshot is written: the next operation merges the overlay into the data."""
        self._position: StorePosition | None = None
        self._held_position: StorePosition | None = None
        self._scans: WeakSet[_Scan] = WeakSet()

    @property
    def position(self) -> StorePosition | None:
        return self._position

    def get(self, key: bytes) -> bytes | None:
        newer = self._overlay
        if newer is not None and key in newer:
            return newer[key]
        return self._data.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self.get(key) for key in keys]

    def scan(self, start: bytes, end: bytes, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        self._merge_overlay()
        scan = _Scan(self._data, start, end, reverse=reverse)
        self._scans.add(scan)
        if not self._overlay:
            return scan.pairs()
        return merged(scan.pairs(), self._overlay.between(start, end), reverse=reverse)

    def approximate_entries(self) -> int:
        return len(self._data) + len(self._overlay or ())

    def apply(self, changes: Iterable[Change], position: StorePosition) -> None:
        self._merge_overlay()
        if self._overlay is not None:
            self._overlay.update(changes)
        else:
            self._change(dict(changes))
        self._position = position

    def _change(self, latest: dict[bytes, bytes | None]) -> None:
        for scan in self._scans:
            scan.save(latest)
        data = self._data
        for key, value in latest.items():
            if value is not None:
                data[key] = value
            else:
                data.pop(key, None)

    def flush(self) -> None:
        """Does nothing: the store is not durable."""

    @property
    def flushes(self) -> int:
        return 0

    def pass_on(self) -> bool:
        """False: no writes are deferred."""
        return False

    def hold(self) -> None:
        self._merge_overlay()
        if self._overlay is None:
            self._overlay, self._held_position = SnapshotOverlay(), self._position

    @property
    def held(self) -> bool:
        return self._overlay is not None and not self._released

    def release(self) -> None:
        self._released = self._overlay is not None

    def _merge_overlay(self) -> None:
        if self._released:
            newer, self._overlay, self._released = self._overlay, None, False
            self._change(newer or {})

    def snapshot(self, directory: Path) -> None:
        """Writes one file: the position, then the entries in order, each prefixed with the lengths of key and value."""
        if self._overlay is None:
            self.hold()
        try:
            directory.mkdir(parents=True)
            with (directory / _FILE).open("wb") as file:
                file.write(_packed(b"", msgspec.json.encode(self._held_position)))
                for key, value in self._data.items():
                    file.write(_packed(key, value))
        finally:
            self.release()

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Loads a snapshot."""
        store = cls()
        try:
            pairs = _unpacked((directory / _FILE).read_bytes())
            _, position = next(pairs)
            store._position = _positions.decode(position)
            store._data = SortedDict(pairs)
        except (OSError, ValueError, StopIteration) as error:
            raise StoreCorruptError(directory, f"its entries cannot be read: {error}") from error
        return store

    def wipe(self) -> None:
        self._data = SortedDict()  # open scans keep the old one
        self._overlay, self._released, self._position = None, False, None

    def close(self) -> None:
        """Does nothing: there are no files."""


class _Scan:
    """The data at the start of the scan: the current data, with the former values of entries changed since."""

    def __init__(self, data: SortedDict[bytes, bytes], start: bytes, end: bytes, *, reverse: bool) -> None:
        self._data = data
        self._start = start
        self._end = end
        self._reverse = reverse
        self._size = _FIRST_CHUNK
        self._former: SortedDict[bytes, bytes | None] = SortedDict()

    def save(self, changed: Iterable[bytes]) -> None:
        for key in changed:
            if self._start <= key < self._end:
                self._former.setdefault(key, self._data.get(key))

    def pairs(self) -> Iterator[tuple[bytes, bytes]]:
        while self._start < self._end:
            yield from self._next_chunk()

    def _next_chunk(self) -> list[tuple[bytes, bytes]]:
        size = self._size
        self._size = min(2 * size, _CHUNK)
        keys = list(islice(self._data.irange(self._start, self._end, (True, False), self._reverse), size))
        start, end = self._start, self._end
        if len(keys) == size:
            start, end = (keys[-1], end) if self._reverse else (start, keys[-1] + b"\x00")
        found: dict[bytes, bytes | None] = {key: self._data[key] for key in keys}
        for key in list(self._former.irange(start, end, (True, False))):
            found[key] = self._former.pop(key)
        self._start, self._end = (self._start, start) if self._reverse else (end, self._end)
        return sorted(((key, value) for key, value in found.items() if value is not None), reverse=self._reverse)


def _packed(key: bytes, value: bytes) -> bytes:
    return _LENGTHS.pack(len(key), len(value)) + key + value


def _unpacked(raw: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 0
    while at < len(raw):
        if at + _LENGTHS.size > len(raw):
            raise ValueError("the file is truncated")
        length, size = _LENGTHS.unpack_from(raw, at)
        start = at + _LENGTHS.size
        at = start + length + size
        if at > len(raw):
            raise ValueError("the file is truncated")
        yield raw[start : start + length], raw[start + length : at]
