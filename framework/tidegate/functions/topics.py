"""TopicDefinition: the declaration of a topic, with the encoding and partitioning of its records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tidegate.codecs import Codec, allows_none
from tidegate.errors import EncodeError, TombstoneError
from tidegate.keys import KEY_GROUPS, encode_key, key_group, partition_of, task_of_group
from tidegate.logs.base import Headers, TopicSpec
from tidegate.time.sources import EventTime, TimeSource
from tidegate.time.watermarks import BoundedOutOfOrderness, WatermarkStrategy

__all__ = ("KeyTypeSource", "TopicDefinition", "TopicHeaders")

TopicHeaders = Headers | Mapping[str, bytes]
"""Headers as users pass them."""

KeyTypeSource = Literal["declared", "field", "default"]
"""The origin of a topic's key type: key_type=, the field that key= names, or the default, str."""


@dataclass(frozen=True, kw_only=True)
class TopicDefinition:
    name: str
    codec: Codec[Any]
    partitions: int
    key: Callable[[Any], Any] | None = None
    """The key function."""
    key_type: Any = str
    key_type_from: KeyTypeSource = "default"
    time: TimeSource = field(default_factory=EventTime)
    watermark: WatermarkStrategy = field(default_factory=BoundedOutOfOrderness)
    retention_ms: int | None = None
    retention_bytes: int | None = None
    compact: bool = False
    internal: bool = False
    """Created by Tidegate for its own records. It is partitioned by key group, so that a rescale moves ranges of keys.
    """
    carried: bool = False
    """Contains the records that were in flight at the checkpoint from which this run began. They are read first, and
    none are added."""
    mailbox: bool = False
    """Contains the messages to a service, from tasks of the app and from outside. It has no event time."""

    def __str__(self) -> str:
        return self.name

    @property
    def spec(self) -> TopicSpec:
        return TopicSpec(
            name=self.name,
            partitions=self.partitions,
            compact=self.compact,
            retention_ms=self.retention_ms,
            retention_bytes=self.retention_bytes,
            append_time=self.time.append_time and not self.carried,
            internal=self.internal or self.carried or self.mailbox,
        )

    # -- values ------------------------------------------------------------------------------------------------------
    @property
    def takes_tombstones(self) -> bool:
        """Whether None can be written, as a tombstone."""
        return self.compact or allows_none(self.codec.type)

    def encode(self, value: Any) -> bytes | None:
        """The bytes of a value; None for a tombstone. Raises EncodeError; TombstoneError, a subclass, for None in a
        topic without tombstones."""
        if value is not None:
            return self.codec.encode(value)
        if not self.takes_tombstones:
            raise TombstoneError(self.name)
        return None

    def decode(self, raw: bytes | None) -> Any:
        """The value; None for a tombstone. Raises DecodeError."""
        return None if raw is None else self.codec.decode(raw)

    # -- keys --------------------------------------------------------------------------------------------------------
    def key_of(self, value: Any) -> bytes | None:
        """The key of a value, from the topic's key function; None: the topic has none."""
        if self.key is None:
            return None
        if value is None:
            raise EncodeError(
                f"a tombstone has no value from which topic {self.name!r} could take its key: pass key=..., or write "
                f"ctx.delete(key, to=...)"
            )
        return encode_key(self.key(value))

    def partition_for(self, key: bytes) -> int:
        if self.internal:
            return task_of_group(key_group(key), self.partitions)
        return partition_of(key, self.partitions)

    @property
    def placement(self) -> Callable[[bytes], int]:
        """`partition_for` as a faster function, with a table of the key groups: every emitted record calls it."""
        count = self.partitions
        if self.internal:
            partitions = [task_of_group(group, count) for group in range(KEY_GROUPS)]
            return lambda key: partitions[key_group(key)]
        return lambda key: partition_of(key, count)
