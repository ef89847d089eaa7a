"""From a key to where its values of one kind begin in the store.

Only for keys that belong in the task. Senders to an outside topic choose the partition, and a wrong choice would
give a key two states. Checked here, once per load, it costs next to nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from murmurhash2 import murmurhash2

from tidegate.errors import MisplacedKeyError
from tidegate.keys import KEY_GROUPS, SEED
from tidegate.state.layout import ESCAPED, KEY_END, group_prefixes

__all__ = ("SingleStoreKey", "StoreKeys")


class StoreKeys:
    """For the values whose keys in the store begin with `prefix`, in one task."""

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
        """What a call for each would return: MisplacedKeyError if any does not belong here."""
        partitions, groups = self._partitions, self._groups
        hashes = [murmurhash2(key, SEED) & 0x7FFFFFFF for key in keys]
        astray = partitions and {hashed % partitions for hashed in hashes} != {self._number}
        if astray or b"\x00" in b"".join(keys):  # the slow way says which, or escapes it
            return [self(key) for key in keys]
        return [groups[hashed % KEY_GROUPS] + key + KEY_END for key, hashed in zip(keys, hashes, strict=True)]


class SingleStoreKey:
    """For what belongs to a task, not to a key."""

    def __init__(self, place: bytes) -> None:
        self._place = place

    def __call__(self, key: bytes) -> bytes:
        return self._place

    def many(self, keys: Sequence[bytes]) -> list[bytes]:
        return [self._place] * len(keys)
