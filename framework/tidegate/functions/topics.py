"""The definition of a topic."""

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
"""Headers as users give them."""

KeyTypeSource = Literal["declared", "field", "default"]
"""The source of a topic's key type: key_type=, the field in key=, or neither, in which case keys are text."""


@dataclass(frozen=True, kw_only=True)
class TopicDefinition:
    name: str
    codec: Codec[Any]
    partitions: int
    key: Callable[[Any], Any] | None = None
    """Returns the key of a value that is sent without one."""
    key_type: Any = str
    key_type_from: KeyTypeSource = "default"
    time: TimeSource = field(default_factory=EventTime)
    watermark: WatermarkStrategy = field(default_factory=BoundedOutOfOrderness)
    retention_ms: int | None = None
    retention_bytes: int | None = None
    compact: bool = False
    internal: bool = False
    """Created by Tidegate for internal use. Keys are partitioned by key group, so that a rescale moves ranges."""
    carried: bool = False
    """Holds the records in flight to a service in the savepoint from which this run started: read first, and not
    written in this run."""
    mailbox: bool = False
    """Holds the messages to a service, from tasks and from clients. It carries no event time."""

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
        """Whether None may be written, as a tombstone."""
        return self.compact or allows_none(self.codec.type)

    def encode(self, value: Any) -> bytes | None:
        """Encode a value; None is a tombstone. Raises EncodeError or its subclass TombstoneError."""
        if value is not None:
            return self.codec.encode(value)
        if not self.takes_tombstones:
            raise TombstoneError(self.name)
        return None

    def decode(self, raw: bytes | None) -> Any:
        """Decode a value; that of a tombstone is None. Raises DecodeError."""
        return None if raw is None else self.codec.decode(raw)

    # -- keys --------------------------------------------------------------------------------------------------------
    def key_of(self, value: Any) -> bytes | None:
        """The key of a value by the topic's key function; None without one."""
        if self.key is None:
            return None
        if value is None:
            raise EncodeError(
                f"a tombstone has no value from which {self.name!r} could take its key: pass the key to delete, with "
                f"key=... or ctx.delete(key, to=...)"
            )
        return encode_key(self.key(value))

    def partition_for(self, key: bytes) -> int:
        if self.internal:
            return task_of_group(key_group(key), self.partitions)
        return partition_of(key, self.partitions)

    @property
    def placement(self) -> Callable[[bytes], int]:
        """`partition_for` with all constants bound: it is called for every emitted record."""
        count = self.partitions
        if self.internal:
            places = [task_of_group(group, count) for group in range(KEY_GROUPS)]
            return lambda key: places[key_group(key)]
        return lambda key: partition_of(key, count)
