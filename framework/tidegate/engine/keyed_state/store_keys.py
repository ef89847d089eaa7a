"""From a key to the prefix of its store keys, for each state of a task.

A key of another task is refused: external producers choose the partition of their records, and with a wrong partition a
key would have state in two tasks. The check runs once per load of a value, which costs almost nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from murmurhash2 import murmurhash2

from tidegate.errors import MisplacedKeyError
from tidegate.keys import KEY_GROUPS, SEED
from tidegate.state.layout import ESCAPED, KEY_END, group_prefixes

__all__ = ("SingleStoreKey", "StoreKeys")


class StoreKeys:
    """The store keys with `prefix`, in one task."""

    def __init__(self, prefix: bytes, topic: str, partitions: int, number: int) -> None:
        """`partitions`: those of the topic, if outside senders choose among them; else 0."""
        self._topic, self._partitions, self._number = topic, partitions, number
        self._groups = group_prefixes(prefix)

    def __call__(self, key: bytes) -> bytes:
        hashed = murmurhash2(key, SEED) & 0x7FFFFFFF  # `key_hash` and `keyed_key`, without the calls
        if self._partitions and hashed % self._partitions != self._number:
            raise MisplacedKeyError(self._topic, self._number, hashed % self._partitions, key)
        return self._groups[hashed % KEY_GROUPS] + key.replace(b"\x00", ESCAPED) + KEY_END

    def many(self, keys: Sequence[bytes]) -> list[bytes]:
        """The same for several keys. MisplacedKeyError: a key belongs to another task."""
        partitions, groups = self._partitions, self._groups
        hashes = [murmurhash2(key, SEED) & 0x7FFFFFFF for key in keys]
        misplaced = partitions and {hashed % partitions for hashed in hashes} != {self._number}
        if misplaced or b"\x00" in b"".join(keys):  # a call per key raises the error, or escapes the key
            return [self(key) for key in keys]
        return [groups[hashed % KEY_GROUPS] + key + KEY_END for key, hashed in zip(keys, hashes, strict=True)]


class SingleStoreKey:
    """One store key, independent of the key: for operator state."""

    def __init__(self, store_key: bytes) -> None:
        self._store_key = store_key

    def __call__(self, key: bytes) -> bytes:
        return self._store_key

    def many(self, keys: Sequence[bytes]) -> list[bytes]:
        return [self._store_key] * len(keys)
