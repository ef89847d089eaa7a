"""Records on the control topic of which everybody has one of their own: one kind under one prefix, written as JSON."""

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
        """`name`: whose it is, such as a task's."""
        return self._prefix + name.encode()

    def name(self, key: bytes) -> str | None:
        """None: the key is of another kind."""
        return key.removeprefix(self._prefix).decode() if key.startswith(self._prefix) else None

    def record(self, name: str, said: T | None, now: int) -> NewRecord:
        """None removes it."""
        return self.key(name), None if said is None else _encoder.encode(said), now, ()

    def decode(self, raw: bytes) -> T:
        return self._decoder.decode(raw)
