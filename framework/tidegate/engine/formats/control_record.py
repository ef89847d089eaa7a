"""Keyed records on the control topic: each kind has a key prefix, and JSON values."""

from __future__ import annotations

from typing import Final, Generic, TypeVar

import msgspec

from tidegate.logs.base import NewRecord

__all__ = ("ControlRecords",)

T = TypeVar("T", bound=msgspec.Struct)

_encoder: Final = msgspec.json.Encoder()


class ControlRecords(Generic[T]):
    def __init__(self, prefix: bytes, type_: type[T]) -> None:
        self._prefix, self._decoder = prefix, msgspec.json.Decoder(type_)

    def key(self, name: str) -> bytes:
        """`name`: the owner of the record, such as a task."""
        return self._prefix + name.encode()

    def name(self, key: bytes) -> str | None:
        """None: a key of another kind."""
        return key.removeprefix(self._prefix).decode() if key.startswith(self._prefix) else None

    def record(self, name: str, value: T | None, now: int) -> NewRecord:
        """None: a tombstone."""
        return self.key(name), None if value is None else _encoder.encode(value), now, ()

    def decode(self, raw: bytes) -> T:
        return self._decoder.decode(raw)
