"""A store in memory: an ordered map that a crash empties."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final
from weakref import WeakSet

from sortedcontainers import SortedDict

from tidegate.state.base import Change, StorePosition

__all__ = ("MemoryStore",)

_CHUNK: Final = 256


class MemoryStore:
    """A scan is a snapshot without a copy: what `apply` changes while a scan is open, it first saves for that scan."""

    def __init__(self) -> None:
        self._data: SortedDict[bytes, bytes] = SortedDict()
        self._position: StorePosition | None = None
        self._scans: WeakSet[_Scan] = WeakSet()

    @property
    def position(self) -> StorePosition | None:
        return self._position

    def get(self, key: bytes) -> bytes | None:
        return self._data.get(key)

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        scan = _Scan(self._data, start, end)
        self._scans.add(scan)
        return scan.pairs()

    def approximate_entries(self) -> int:
        return len(self._data)

    def apply(self, changes: Iterable[Change], position: StorePosition) -> None:
        latest = dict(changes)
        for scan in self._scans:
            scan.save(latest)
        data = self._data
        for key, value in latest.items():
            if value is not None:
                data[key] = value
            else:
                data.pop(key, None)
        self._position = position

    def flush(self) -> None:
        """Nothing to do: nothing here survives a crash."""

    def wipe(self) -> None:
        self._data = SortedDict()  # open scans keep the old one
        self._position = None

    def close(self) -> None:
        """Nothing to let go of."""


class _Scan:
    """The data as it was when the scan began: as it is now, and the former values of what was changed since."""

    def __init__(self, data: SortedDict[bytes, bytes], start: bytes, end: bytes) -> None:
        self._data = data
        self._start = start
        self._end = end
        self._former: SortedDict[bytes, bytes | None] = SortedDict()

    def save(self, changed: Iterable[bytes]) -> None:
        for key in changed:
            if self._start <= key < self._end:
                self._former.setdefault(key, self._data.get(key))

    def pairs(self) -> Iterator[tuple[bytes, bytes]]:
        while self._start < self._end:
            yield from self._next_chunk()

    def _next_chunk(self) -> list[tuple[bytes, bytes]]:
        keys = list(islice(self._data.irange(self._start, self._end, (True, False)), _CHUNK))
        upto = keys[-1] + b"\x00" if len(keys) == _CHUNK else self._end
        found: dict[bytes, bytes | None] = {key: self._data[key] for key in keys}
        for key in list(self._former.irange(self._start, upto, (True, False))):
            found[key] = self._former.pop(key)
        self._start = upto
        return sorted((key, value) for key, value in found.items() if value is not None)
