"""Reads one state of one task: a key's value, from the bytes in the store to JSON text.

Nothing here awaits. What one call reads, the commit marker included, therefore belongs to one commit.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from tidegate.codecs import codec_for
from tidegate.errors import UsageError, ValueTooLargeError
from tidegate.query.json_values import json_bytes, parse_key
from tidegate.query.views import TaskView
from tidegate.state.declaration import StateDeclaration
from tidegate.state.layout import EXPIRY, key_range, keyed_key, keyed_prefix, timer_prefix, unpack_due
from tidegate.state.map_keys import map_keys

__all__ = ("StateReader", "timers_of")


class StateReader:
    """Reads one declared state. Created once and used for every request."""

    def __init__(self, declaration: StateDeclaration) -> None:
        self.declaration = declaration
        self.single = declaration.kind not in ("map", "list")
        """Whether each key has exactly one entry."""
        self.prefix = keyed_prefix(declaration.name)
        self._keys = map_keys(declaration.key_type) if declaration.kind == "map" else None
        self._by_event_time = declaration.ttl is not None and declaration.ttl.time == "event"
        self.text = self._text_function()
        """Converts a stored value, without its expiry, to JSON."""

    def _text_function(self) -> Any:
        codec = self.declaration.codec
        if self.declaration.kind == "aggregating":
            function = self.declaration.function
            return lambda raw: _plain(function.result(codec.decode(raw)))
        if codec.type is bytes:
            return lambda raw: orjson.dumps(json_bytes(raw))
        # Decoded and encoded again: this fills in fields that were added to the type since.
        decode, encode = codec.decode_raw, codec.encode_raw
        return lambda raw: encode(decode(raw))

    # -- point reads -------------------------------------------------------------------------------------------------
    def value(self, view: TaskView, key: bytes, now: int, *, max_bytes: int) -> bytes | None:
        """The complete value of a key, or None."""
        if self.single:
            return self.of_entry(view, view.store.get(keyed_key(self.prefix, key)), now)
        return self.whole(self.entries(view, key, now), max_bytes=max_bytes)

    def values(self, view: TaskView, keys: list[bytes], now: int, *, max_bytes: int) -> list[bytes | None]:
        """The values of several keys. ValueTooLargeError: together they exceed `max_bytes`."""
        if not self.single:
            found = (self.value(view, key, now, max_bytes=max_bytes) for key in keys)
        else:
            stored = view.store.get_many([keyed_key(self.prefix, key) for key in keys])
            found = (self.of_entry(view, raw, now) for raw in stored)
        return list(_within(found, max_bytes))

    def entry(self, view: TaskView, key: bytes, at: str, now: int) -> bytes | None:
        """One entry of a key's map."""
        if self._keys is None:
            raise UsageError(f"state {self.declaration.name!r} is not a map: leave out ?at=")
        plain, place = parse_key(at, self._keys.type), keyed_key(self.prefix, key)
        found = view.store.get(place + self._keys.stored(plain))
        if found is None and self._keys.layout:  # an older checkpoint has it as it was written then
            found = view.store.get(place + plain)
        return self.of_entry(view, found, now)

    def entries(self, view: TaskView, key: bytes, now: int) -> Iterator[tuple[bytes, bytes]]:
        """The live entries of a key: subkey and value, without the expiry."""
        start, end = key_range(self.prefix, key)
        for store_key, raw in view.store.scan(start, end):
            alive = self.alive(view, raw, now)
            if alive is not None:
                yield store_key[len(start) :], alive

    def name(self, sub: bytes) -> bytes:
        """The stored key of a map's entry as a name in a JSON object."""
        return name_of(sub if self._keys is None else self._keys.plain(sub))

    # -- parts -------------------------------------------------------------------------------------------------------
    def of_entry(self, view: TaskView, stored: bytes | None, now: int) -> bytes | None:
        alive = None if stored is None else self.alive(view, stored, now)
        return None if alive is None else self.text(alive)

    def alive(self, view: TaskView, stored: bytes, now: int) -> bytes | None:
        """The value of an entry, unless it has expired."""
        if self.declaration.ttl is None:
            return stored
        (expires,) = EXPIRY.unpack_from(stored)
        return stored[EXPIRY.size :] if expires > (view.event_time() if self._by_event_time else now) else None

    def whole(self, entries: Iterator[tuple[bytes, bytes]], *, max_bytes: int) -> bytes | None:
        """A map or a list from its entries; None: there are none."""
        parts: list[bytes] = []
        size, is_map = 0, self.declaration.kind == "map"
        for sub, raw in entries:
            text = self.text(raw)
            parts.append(self.name(sub) + b":" + text if is_map else text)
            size += len(parts[-1]) + 1
            if size > max_bytes:
                raise ValueTooLargeError(max_bytes)
        if not parts:
            return None
        inside = b",".join(parts)
        return b"{" + inside + b"}" if is_map else b"[" + inside + b"]"


def _within(texts: Iterable[bytes | None], max_bytes: int) -> Iterator[bytes | None]:
    size = 0
    for text in texts:
        size += len(text or b"")
        if size > max_bytes:
            raise ValueTooLargeError(max_bytes)
        yield text


def timers_of(view: TaskView, key: bytes) -> Iterator[tuple[str, int, int]]:
    """The timers of a key: name, domain, time."""
    prefix = timer_prefix(key)
    for store_key, due in view.store.scan(prefix, prefix[:-1] + b"\x01"):
        domain, at = unpack_due(due)
        yield store_key[len(prefix) :].decode(), domain, at


def name_of(sub: bytes) -> bytes:
    try:
        return orjson.dumps(sub.decode())
    except UnicodeDecodeError:
        return orjson.dumps(f"base64:{base64.b64encode(sub).decode()}")


def _plain(value: Any) -> bytes:
    raw = codec_for(type(value)).encode(value)
    return orjson.dumps(json_bytes(raw)) if isinstance(value, bytes) else raw
