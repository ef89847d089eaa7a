"""Pages of stored entries in key order, merged over tasks and key groups.

A store orders its entries by key group first, so a range of keys is one range in each group: a page merges them. An
entry's *tail* is what follows the key group in its store key: escaped key, terminator, subkey. Tails order alike in
every group; the *cursor* of the next page is the tail of the last entry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heapreplace
from time import perf_counter
from typing import Final, NamedTuple

from msgspec import Struct

from tidegate.state.base import Store
from tidegate.state.layout import prefix_range

__all__ = ("Page", "PageEntry", "Span", "take_page")

SLICE_SECONDS: Final = 0.002
"""How long a scan holds the event loop before it yields."""


class PageEntry(Struct, array_like=True, frozen=True, gc=False):
    """A stored value of a key, or of one of its subkeys."""

    key: bytes
    sub: bytes
    value: bytes


class Page(Struct, array_like=True, frozen=True):
    entries: list[PageEntry]
    after: bytes | None = None
    """The cursor of the next page; None: this is the last page."""


class Span(NamedTuple):
    """One range of a store: entries whose store keys begin with `stem`. Their tails order alike in all spans."""

    store: Store
    stem: bytes
    begin: bytes
    """Prefix of the tails."""
    low: bytes = b""
    """Lower bound of the tails, inclusive."""
    high: bytes = b""
    """Upper bound of the tails, exclusive. Empty: unbounded."""

    def scan(self, after: bytes) -> Iterator[tuple[bytes, bytes]]:
        start, end = prefix_range(self.stem + self.begin)
        start = max(start, self.stem + self.low)
        if self.high:
            end = min(end, self.stem + self.high)
        if after:
            start = max(start, self.stem + after + b"\x00")
        return self.store.scan(start, end)


class _Head(NamedTuple):
    """The next entry of a span, ordered by its tail."""

    tail: bytes
    number: int
    value: bytes


class _Yielder:
    """Yields to the event loop once per slice."""

    def __init__(self) -> None:
        self._until = perf_counter() + SLICE_SECONDS

    async def maybe_yield(self) -> None:
        if perf_counter() >= self._until:
            await asyncio.sleep(0)
            self._until = perf_counter() + SLICE_SECONDS


async def take_page(
    spans: Iterable[Span], *, after: bytes = b"", limit: int, max_bytes: int = 1 << 20
) -> tuple[list[tuple[bytes, bytes]], bytes | None]:
    """Tails and values of all spans, in order, after the cursor `after`; and the cursor of the next page."""
    yielder = _Yielder()
    stems: list[int] = []
    scans: list[Iterator[tuple[bytes, bytes]]] = []
    heads: list[_Head] = []
    for span in spans:
        stems.append(len(span.stem))
        scans.append(span.scan(after))
        first = next(scans[-1], None)
        if first is not None:
            heads.append(_Head(first[0][len(span.stem) :], len(scans) - 1, first[1]))
        await yielder.maybe_yield()
    heapify(heads)
    taken: list[tuple[bytes, bytes]] = []
    size = 0
    while heads and len(taken) < limit and (not taken or size + len(heads[0].value) <= max_bytes):
        tail, number, value = heads[0]
        taken.append((tail, value))
        size += len(tail) + len(value)
        following = next(scans[number], None)
        if following is None:
            heappop(heads)
        else:
            heapreplace(heads, _Head(following[0][stems[number] :], number, following[1]))
        await yielder.maybe_yield()
    return taken, taken[-1][0] if heads and taken else None
