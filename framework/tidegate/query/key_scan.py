"""Pages of keys with their values, in key order, over all local tasks.

A page holds whole keys only. Its *cursor* is a position in key order, the same for all tasks and workers, so that pages
of several workers can be merged.
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

__all__ = ("KeyEntry", "KeyPage", "KeyRange", "after_key", "scan_keys")

_CHUNK: Final = 1000
"""Entries read at a time, of states that have several entries per key."""


class KeyEntry(NamedTuple):
    key: bytes
    value: bytes | None
    """As JSON; None: too large for a page."""


class KeyPage(NamedTuple):
    items: list[KeyEntry]
    next: bytes | None
    """The cursor of the next page; None: this is the last page."""


@dataclass(frozen=True, kw_only=True)
class KeyRange:
    """Keys that begin with `prefix`, from `start` (inclusive) to `end` (exclusive)."""

    prefix: bytes = b""
    start: bytes = b""
    end: bytes = b""
    cursor: bytes = b""
    """Of the previous page."""

    @property
    def low(self) -> bytes:
        return max(escape_key(self.start), self.cursor)

    @property
    def high(self) -> bytes:
        return escape_key(self.end)


def after_key(key: bytes) -> bytes:
    """The cursor behind all entries of a key, and before those of all greater keys."""
    return escape_key(key) + b"\x00\x01"


async def scan_keys(
    view: ServiceView, reader: StateReader, keys: KeyRange, now: int, *, limit: int, max_bytes: int
) -> KeyPage:
    """At most `limit` keys, and about `max_bytes` bytes."""
    if reader.single:
        return await _single(view, reader, keys, now, limit=limit, max_bytes=max_bytes)
    return await _several(view, reader, keys, now, limit=limit, max_bytes=max_bytes)


async def _single(
    view: ServiceView, reader: StateReader, keys: KeyRange, now: int, *, limit: int, max_bytes: int
) -> KeyPage:
    spans = view.spans(reader.prefix, keys.prefix, keys.low, keys.high)
    taken, more = await take_page(spans, limit=limit, max_bytes=max_bytes)
    items = []
    for tail, stored in taken:
        key, _ = parse_tail(tail)
        text = reader.of_entry(view.task_of(key), stored, now)
        if text is not None:
            items.append(KeyEntry(key, text))
    return KeyPage(items, None if more is None else after_key(parse_tail(more)[0]))


async def _several(
    view: ServiceView, reader: StateReader, keys: KeyRange, now: int, *, limit: int, max_bytes: int
) -> KeyPage:
    items: list[KeyEntry] = []
    size, low = 0, keys.low
    while True:
        spans = view.spans(reader.prefix, keys.prefix, low, keys.high)
        taken, more = await take_page(spans, limit=_CHUNK, max_bytes=max_bytes)
        groups = [(key, list(found)) for key, found in groupby(_entries(taken), key=lambda entry: entry[0])]
        if more is not None and len(groups) > 1:
            groups.pop()  # possibly incomplete: the next chunk starts with this key
        for key, found in groups:
            if len(items) >= limit or size > max_bytes:
                return KeyPage(items, after_key(items[-1].key))
            complete = more is None or len(groups) > 1
            text = _whole(view, reader, key, found, now, max_bytes=max_bytes, complete=complete)
            if text != b"":
                items.append(KeyEntry(key, text))
                size += len(text or b"")
            low = after_key(key)
        if more is None:
            return KeyPage(items, None)


def _entries(taken: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes, bytes]]:
    return ((*parse_tail(tail), stored) for tail, stored in taken)


def _whole(
    view: ServiceView,
    reader: StateReader,
    key: bytes,
    found: list[tuple[bytes, bytes, bytes]],
    now: int,
    *,
    max_bytes: int,
    complete: bool,
) -> bytes | None:
    """The value of a key from its entries. Empty: all entries have expired. None: too large for a page."""
    task = view.task_of(key)
    try:
        if not complete:  # the key has more entries than a chunk
            return reader.value(task, key, now, max_bytes=max_bytes) or b""
        alive = ((sub, raw) for _, sub, stored in found if (raw := reader.alive(task, stored, now)) is not None)
        return reader.whole(alive, max_bytes=max_bytes) or b""
    except ValueTooLargeError:
        return None
