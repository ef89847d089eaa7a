"""Pages of keys with their values, in the order of keys, over all tasks that are here.

A page holds whole keys only. Where the next one goes on is a *place* in the order of keys, the same for all tasks and
workers, so that pages of several workers can be merged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Final, NamedTuple

from tidegate.errors import ValueTooLargeError
from tidegate.query.pages import take_page
from tidegate.query.state_reader import StateReader
from tidegate.query.views import ServiceView
from tidegate.state.layout import escape_key, parse_tail

__all__ = ("Item", "KeyPage", "KeyRange", "after_key", "scan_keys")

_CHUNK: Final = 1000
"""Entries that are taken at a time, of states that have several for each key."""


class Item(NamedTuple):
    key: bytes
    value: bytes | None
    """As JSON; None: it is too large for a page."""


class KeyPage(NamedTuple):
    items: list[Item]
    next: bytes | None
    """Where the next page begins; None: there is no more."""


@dataclass(frozen=True, kw_only=True)
class KeyRange:
    """Keys that begin with `prefix`, from `start` on, up to and without `end`."""

    prefix: bytes = b""
    start: bytes = b""
    end: bytes = b""
    place: bytes = b""
    """Where a page before this one has ended."""

    @property
    def low(self) -> bytes:
        return max(escape_key(self.start), self.place)

    @property
    def high(self) -> bytes:
        return escape_key(self.end)


def after_key(key: bytes) -> bytes:
    """The place behind all entries of a key, and before those of all greater keys."""
    return escape_key(key) + b"\x00\x01"


async def scan_keys(
    view: ServiceView, reader: StateReader, keys: KeyRange, now: int, *, limit: int, most: int
) -> KeyPage:
    """At most `limit` keys, and about `most` bytes."""
    if reader.single:
        return await _single(view, reader, keys, now, limit=limit, most=most)
    return await _several(view, reader, keys, now, limit=limit, most=most)


async def _single(
    view: ServiceView, reader: StateReader, keys: KeyRange, now: int, *, limit: int, most: int
) -> KeyPage:
    spans = view.spans(reader.prefix, keys.prefix, keys.low, keys.high)
    taken, more = await take_page(spans, limit=limit, most_bytes=most)
    items = []
    for place, stored in taken:
        key, _ = parse_tail(place)
        text = reader.of_entry(view.task_of(key), stored, now)
        if text is not None:
            items.append(Item(key, text))
    return KeyPage(items, None if more is None else after_key(parse_tail(more)[0]))


async def _several(
    view: ServiceView, reader: StateReader, keys: KeyRange, now: int, *, limit: int, most: int
) -> KeyPage:
    items: list[Item] = []
    size, low = 0, keys.low
    while True:
        spans = view.spans(reader.prefix, keys.prefix, low, keys.high)
        taken, more = await take_page(spans, limit=_CHUNK, most_bytes=most)
        groups = [(key, list(found)) for key, found in groupby(_entries(taken), key=lambda entry: entry[0])]
        if more is not None and len(groups) > 1:
            groups.pop()  # there may be more of it: the next chunk has all
        for key, found in groups:
            if len(items) >= limit or size > most:
                return KeyPage(items, after_key(items[-1].key))
            complete = more is None or len(groups) > 1
            text = _whole(view, reader, key, found, now, most=most, complete=complete)
            if text != b"":
                items.append(Item(key, text))
                size += len(text or b"")
            low = after_key(key)
        if more is None:
            return KeyPage(items, None)


def _entries(taken: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes, bytes]]:
    return ((*parse_tail(place), stored) for place, stored in taken)


def _whole(
    view: ServiceView,
    reader: StateReader,
    key: bytes,
    found: list[tuple[bytes, bytes, bytes]],
    now: int,
    *,
    most: int,
    complete: bool,
) -> bytes | None:
    """Empty: all of it has outlived its time. None: it is too large."""
    task = view.task_of(key)
    try:
        if not complete:  # one key fills a chunk
            return reader.value(task, key, now, most=most) or b""
        alive = ((sub, raw) for _, sub, stored in found if (raw := reader.alive(task, stored, now)) is not None)
        return reader.whole(alive, most=most) or b""
    except ValueTooLargeError:
        return None
