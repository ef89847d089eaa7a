"""Pages of stored entries in the order of keys, merged over tasks and key groups.

A store orders its keys by key group first, so a range of keys is one range in each group: a page is a merge of them.
The place in that order after which the next page goes on, a *cursor*, is the same in every group: key, end, subkey.
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

TURN: Final = 0.002
"""After so many seconds of work the event loop gets its turn."""


class PageEntry(Struct, array_like=True, frozen=True, gc=False):
    """A stored value: of a key, or of one subkey of it."""

    key: bytes
    sub: bytes
    value: bytes


class Page(Struct, array_like=True, frozen=True):
    entries: list[PageEntry]
    after: bytes | None = None
    """The cursor of the next page; None: there is no more."""


class Span(NamedTuple):
    """One range of a store. What comes after `stem` in its keys is ordered alike in all spans of a page."""

    store: Store
    stem: bytes
    begin: bytes
    """Of what comes after the stem: keys that begin with this."""
    low: bytes = b""
    """And not below this;"""
    high: bytes = b""
    """nor at this, or above it. Empty: there is no bound."""

    def scan(self, after: bytes) -> Iterator[tuple[bytes, bytes]]:
        start, end = prefix_range(self.stem + self.begin)
        start = max(start, self.stem + self.low)
        if self.high:
            end = min(end, self.stem + self.high)
        if after:
            start = max(start, self.stem + after + b"\x00")
        return self.store.scan(start, end)


class _Head(NamedTuple):
    """The next entry of a span; ordered by what follows the stem."""

    place: bytes
    number: int
    value: bytes


class _Turns:
    """Gives the event loop its turn after some work."""

    def __init__(self) -> None:
        self._until = perf_counter() + TURN

    async def maybe(self) -> None:
        if perf_counter() >= self._until:
            await asyncio.sleep(0)
            self._until = perf_counter() + TURN


async def take_page(
    spans: Iterable[Span], *, after: bytes = b"", limit: int, most_bytes: int = 1 << 20
) -> tuple[list[tuple[bytes, bytes]], bytes | None]:
    """Places and values of all spans, in order, from behind `after` on; and the cursor of the next page."""
    turns = _Turns()
    stems: list[int] = []
    scans: list[Iterator[tuple[bytes, bytes]]] = []
    heads: list[_Head] = []
    for span in spans:
        stems.append(len(span.stem))
        scans.append(span.scan(after))
        first = next(scans[-1], None)
        if first is not None:
            heads.append(_Head(first[0][len(span.stem) :], len(scans) - 1, first[1]))
        await turns.maybe()
    heapify(heads)
    taken: list[tuple[bytes, bytes]] = []
    size = 0
    while heads and len(taken) < limit and (not taken or size + len(heads[0].value) <= most_bytes):
        place, number, value = heads[0]
        taken.append((place, value))
        size += len(place) + len(value)
        following = next(scans[number], None)
        if following is None:
            heappop(heads)
        else:
            heapreplace(heads, _Head(following[0][stems[number] :], number, following[1]))
        await turns.maybe()
    return taken, taken[-1][0] if heads and taken else None
