"""What an app says about a topic."""

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
"""Where a topic's key type is from: key_type=, the field that key= names, or neither, and then keys are text."""


@dataclass(frozen=True, kw_only=True)
class TopicDefinition:
    name: str
    codec: Codec[Any]
    partitions: int
    key: Callable[[Any], Any] | None = None
    """How senders key a value."""
    key_type: Any = str
    key_type_from: KeyTypeSource = "default"
    time: TimeSource = field(default_factory=EventTime)
    watermark: WatermarkStrategy = field(default_factory=BoundedOutOfOrderness)
    retention_ms: int | None = None
    retention_bytes: int | None = None
    compact: bool = False
    internal: bool = False
    """Made by Tidegate for itself: keys are placed by key group, so that a rescale moves ranges."""
    carried: bool = False
    """Holds what was on its way to a service at the cut from which this run began: read first, written by nobody."""
    mailbox: bool = False
    """Holds a service's messages: from the app's own tasks, and from whoever tells and asks. It carries no time."""

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
        """Whether None may be written, as a record without a value."""
        return self.compact or allows_none(self.codec.type)

    def encode(self, value: Any) -> bytes | None:
        """A value as it is written; None as a tombstone. Raises EncodeError, of which TombstoneError is one."""
        if value is not None:
            return self.codec.encode(value)
        if not self.takes_tombstones:
            raise TombstoneError(self.name)
        return None

    def decode(self, raw: bytes | None) -> Any:
        """A value as it was written; of a tombstone None. Raises DecodeError."""
        return None if raw is None else self.codec.decode(raw)

    # -- keys --------------------------------------------------------------------------------------------------------
    def key_of(self, value: Any) -> bytes | None:
        """The key that the topic's own function gives a value; None: it has no function."""
        if self.key is None:
            return None
        if value is None:
            raise EncodeError(
                f"a tombstone has no value from which {self.name!r} could take its key: say which key is deleted, with "
                f"key=... or by ctx.delete(key, to=...)"
            )
        return encode_key(self.key(value))

    def partition_for(self, key: bytes) -> int:
        if self.internal:
            return task_of_group(key_group(key), self.partitions)
        return partition_of(key, self.partitions)

    @property
    def placement(self) -> Callable[[bytes], int]:
        """`partition_for`, with everything that is fixed looked up beforehand: it is asked for every emitted record."""
        count = self.partitions
        if self.internal:
            places = [task_of_group(group, count) for group in range(KEY_GROUPS)]
            return lambda key: places[key_group(key)]
        return lambda key: partition_of(key, count)
