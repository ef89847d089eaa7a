"""Builds log records from JSON lines: validated, keyed, timestamped and partitioned as their topic declares."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Any

import msgspec

from tidegate.engine.topology.plan import Plan
from tidegate.errors import DataError, DecodeError, EncodeError, TombstoneError
from tidegate.functions.topics import TopicDefinition
from tidegate.keys import decode_key, encode_key
from tidegate.logs.records import check_size
from tidegate.owner_rpc.protocol import AppendedRecord
from tidegate.time.clock import Clock
from tidegate.time.sources import EventTime

__all__ = ("RecordBuilder", "needs_key", "typed_topic")

_TEXT = (str, bytes)


def needs_key(plan: Plan, topic: TopicDefinition) -> bool:
    """Whether records need a key: the topic is compacted, or a keyed service reads it without a shuffle."""
    readers = [service for service in plan.services.values() if topic.name in {t.name for t in service.topics}]
    return topic.compact or any(service.part_of is None for service in readers)


def typed_topic(plan: Plan, name: str) -> TopicDefinition:
    """The topic with its value type: the declared one, else the event type of a handler that reads the topic."""
    topic = plan.topics[name]
    read = [found for service in plan.services.values() for found in service.topics if found.name == name]
    return next((found for found in (topic, *read) if found.codec.type is not Any), topic)


class _Envelope(msgspec.Struct, forbid_unknown_fields=True):
    """A line of --records. `partition` and `offset` are accepted, because `tail` prints them, and ignored."""

    value: msgspec.Raw
    key: Any = None
    timestamp: int | None = None
    headers: dict[str, Any] | None = None
    partition: Any = None
    offset: Any = None


class RecordBuilder:
    """Builds records of one topic. An invalid line raises a DataError that says what is wrong with it."""

    def __init__(
        self,
        topic: TopicDefinition,
        clock: Clock,
        *,
        keyed: bool,
        largest: int,
        field: str | None = None,
        envelopes: bool = False,
        hint: str = "Take it from a field (--key FIELD), give it with each record (--records), or declare",
    ) -> None:
        """keyed: reject records without a key. largest: the size limit in bytes. field: take the key from this field of
        the value. envelopes: a line is a record with key, value, timestamp and headers, not just a value. hint: how the
        caller provides a key, for the error message."""
        self._topic, self._clock, self._keyed, self._field = topic, clock, keyed, field
        self._envelopes = msgspec.json.Decoder(_Envelope) if envelopes else None
        self._partitioner, self._key_type = topic.placement, topic.key_type
        self._round_robin = 0
        self._time = _event_time(topic, clock)
        self._largest, self._hint = largest, hint

    def make(self, line: bytes) -> AppendedRecord:
        if self._envelopes is None:
            raw = line.strip(b" \t\r\n")
            return self._record(self._null() if raw == b"null" else raw, None, None, [])
        try:
            envelope = self._envelopes.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise DecodeError(f"not a record: {error}") from error
        headers = [(name, text) for name, value in (envelope.headers or {}).items() for text in _header_values(value)]
        key = None if envelope.key is None else encode_key(_from_base64(envelope.key))
        return self._record(self._value(bytes(envelope.value)), key, envelope.timestamp, headers)

    def _null(self) -> bytes | None:
        """What `null` stands for: a tombstone; in a topic of bytes that takes none, the word."""
        if self._topic.takes_tombstones:
            return None
        if self._topic.codec.type is bytes:
            return b"null"
        raise DecodeError(str(TombstoneError(self._topic.name)))

    def _value(self, raw: bytes) -> bytes | None:
        if raw == b"null":
            return self._null()
        if self._topic.codec.type is not bytes:
            return raw
        value = _from_base64(msgspec.json.decode(raw))
        return value if isinstance(value, bytes) else raw

    def _record(
        self, raw: bytes | None, key: bytes | None, timestamp: int | None, headers: list[tuple[str, bytes]]
    ) -> AppendedRecord:
        value = self._topic.decode(raw)
        if key is None and raw is not None:
            key = self._key(value)
        if key is not None and self._key_type is not str:  # str is also the default of an undeclared key type
            decode_key(key, self._key_type)
        if key is None and self._keyed:
            raise DataError(
                f"the record has no key, and {self._topic.name!r} needs one. {self._hint} how values are keyed: "
                f"app.topic(..., key=...)."
            )
        if timestamp is None:
            timestamp = self._time(value)
        check_size(self._topic.name, (key, raw, timestamp, headers), self._largest)
        return self._partition(key), key, raw, timestamp, headers

    def _key(self, value: Any) -> bytes | None:
        function = self._topic.key if self._field is None else self._from_field
        if function is None:
            return None
        try:
            key = function(value)
        except Exception as error:
            raise EncodeError(f"the key function failed: {type(error).__name__}: {error}") from error
        return None if key is None else encode_key(key)

    def _from_field(self, value: Any) -> Any:
        assert self._field is not None  # noqa: S101  only called then
        return value[self._field] if isinstance(value, dict) else getattr(value, self._field)

    def _partition(self, key: bytes | None) -> int:
        """Records without a key are distributed round-robin."""
        if key is not None:
            return self._partitioner(key)
        self._round_robin = (self._round_robin + 1) % self._topic.partitions
        return self._round_robin


def _event_time(topic: TopicDefinition, clock: Clock) -> Callable[[Any], int]:
    """The event's own time, if the topic uses event time; else the clock's."""
    extract = topic.time.extractor(clock, outside=True) if isinstance(topic.time, EventTime) else None
    if extract is None:
        return lambda _: clock.now()

    def time(value: Any) -> int:
        try:
            return extract(value, clock.now())
        except Exception as error:
            raise DataError(f"its event time cannot be extracted: {type(error).__name__}: {error}") from error

    return time


def _header_values(value: Any) -> list[bytes]:
    """Text, base64 as `tail` prints it, or a list of these under one header name."""
    if isinstance(value, list):
        return [text for item in value for text in _header_values(item)]
    found = _from_base64(value)
    if not isinstance(found, _TEXT):
        raise DecodeError(f"not a record: the value of a header must be text, not {value!r}")
    return [found.encode() if isinstance(found, str) else found]


def _from_base64(value: Any) -> Any:
    """{"base64": ...} as bytes; anything else as it is."""
    if isinstance(value, dict) and value.keys() == {"base64"}:
        try:
            return base64.b64decode(value["base64"], validate=True)
        except (binascii.Error, TypeError, ValueError) as error:
            raise DecodeError(f"not a record: {value!r} is not base64") from error
    return value
