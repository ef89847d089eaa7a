"""Key serialization and partitioning: a key's partition of a public topic, its key group, its task."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
from murmurhash2 import murmurhash2

from tidegate.errors import DecodeError, EncodeError

__all__ = (
    "KEY_GROUPS",
    "SEED",
    "Key",
    "decode_key",
    "encode_key",
    "key_decoder",
    "key_group",
    "key_hash",
    "partition_of",
    "task_of_group",
)

Key = str | int | bytes
"""The usual types of keys; any value that msgspec encodes as JSON works, too."""

KEY_GROUPS: Final = 128
"""The granularity of rescaling, and the maximum parallelism. Fixed, so that a rescale moves whole ranges of groups."""

SEED: Final = 0x9747B28C  # of Kafka's murmur2
_canonical: Final = msgspec.json.Encoder(order="deterministic")


def encode_key(key: Any) -> bytes:
    """The bytes of a key: str as UTF-8, int as decimal digits, bytes unchanged, any other value as canonical JSON."""
    kind = type(key)
    if kind is str:
        return key.encode()  # type: ignore[no-any-return]
    if kind is bytes:
        return key  # type: ignore[no-any-return]
    if kind is int:
        return b"%d" % key
    try:
        raw = _canonical.encode(key)
    except (TypeError, ValueError) as error:
        raise EncodeError(f"{key!r} cannot be a key: {error}") from error
    if raw == b"null":  # None, NaN or an infinity
        raise EncodeError(f"{key!r} cannot be a key")
    return raw


def key_decoder(key_type: Any) -> Callable[[bytes], Any]:
    """The inverse of `encode_key` for keys of `key_type`."""
    if key_type is bytes:
        return bytes
    if key_type is str:
        return bytes.decode
    if key_type is int:
        return int
    return msgspec.json.Decoder(key_type).decode


def decode_key(raw: bytes, key_type: Any) -> Any:
    try:
        return key_decoder(key_type)(raw)
    except (ValueError, msgspec.MsgspecError) as error:
        raise DecodeError(
            f"the key {raw!r} is not of type {getattr(key_type, '__name__', key_type)}: {error}"
        ) from error


def key_hash(key: bytes) -> int:
    """Kafka's murmur2 without the sign bit."""
    return murmurhash2(key, SEED) & 0x7FFFFFFF


def partition_of(key: bytes, partitions: int) -> int:
    """The partition that the default partitioner of Kafka's Java client assigns."""
    return (murmurhash2(key, SEED) & 0x7FFFFFFF) % partitions


def key_group(key: bytes) -> int:
    return (murmurhash2(key, SEED) & 0x7FFFFFFF) % KEY_GROUPS


def task_of_group(group: int, tasks: int) -> int:
    """Tasks own contiguous ranges of key groups, so that a rescale moves few and whole ranges."""
    return group * tasks // KEY_GROUPS
