"""Stored keys and values as JSON, by their declared types."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Any

import msgspec
import orjson

from tidegate.codecs import codec_for
from tidegate.errors import DecodeError, EncodeError, UsageError
from tidegate.keys import decode_key, encode_key
from tidegate.query.pages import PageEntry
from tidegate.state.declaration import StateDeclaration

__all__ = ("StateValues", "json_bytes", "json_key", "parse_key")


def json_bytes(raw: bytes | None) -> Any:
    """Bytes of an unknown type: parsed as JSON if they are valid JSON, else base64."""
    if raw is None:
        return None
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        return {"base64": base64.b64encode(raw).decode()}


def json_key(raw: bytes | None, key_type: Any = str) -> Any:
    """A key as JSON; one that is not of the declared type as text, or base64."""
    if raw is None:
        return None
    try:
        key = decode_key(raw, key_type)
        if key_type is not bytes:
            return key if key_type in (str, int) else orjson.loads(raw)
    except DecodeError:
        pass
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(raw).decode()}


def parse_key(text: str, key_type: Any) -> bytes:
    """The bytes of a key that was typed in: text as it is, a number as digits, anything else as JSON."""
    try:
        if key_type in (str, bytes):
            return text.encode()
        return encode_key(msgspec.json.decode(text.encode(), type=key_type))
    except (msgspec.MsgspecError, EncodeError, UnicodeEncodeError, RecursionError) as error:
        name = getattr(key_type, "__name__", repr(key_type))
        raise UsageError(f"{text!r} is not a valid key: keys are of type {name}, written as JSON ({error})") from error


class StateValues:
    """Converts the entries of one state to JSON."""

    def __init__(self, declaration: StateDeclaration) -> None:
        self._declaration = declaration
        self._kind = declaration.kind

    def of(self, entries: Iterable[PageEntry]) -> Any:
        """The value of a key, built from all its entries."""
        if self._kind == "map":
            return {_name(entry.sub): self.value(entry.value) for entry in entries}
        if self._kind == "list":
            return [self.value(entry.value) for entry in entries]
        (entry,) = entries
        return self.value(entry.value)

    def value(self, raw: bytes) -> Any:
        """One stored value. Decoding it by its type fills in fields that were added to the type since."""
        declaration = self._declaration
        value = declaration.codec.decode(raw)
        if self._kind == "aggregating":
            return _plain(declaration.function.result(value))
        if declaration.codec.type is bytes:
            return json_bytes(raw)
        return orjson.loads(declaration.codec.encode(value))


def _plain(value: Any) -> Any:
    return json_bytes(codec_for(type(value)).encode(value))


def _name(sub: bytes) -> str:
    """The key of a map's entry as a name in a JSON object."""
    try:
        return sub.decode()
    except UnicodeDecodeError:
        return f"base64:{base64.b64encode(sub).decode()}"
