"""The file format of a task's in-flight records: msgpack frames, each prefixed with its length."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec
from msgspec import Struct

from tidegate.errors import CheckpointDamagedError
from tidegate.logs.base import LogRecord, TopicPartition

__all__ = ("InFlightRecord", "decode_in_flight", "encode_in_flight", "in_flight_record")

_LENGTH: Final = struct.Struct(">I")


class InFlightRecord(Struct, frozen=True, array_like=True):
    """A record with its topic, partition and offset. Satisfies LogRecord."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()

    @property
    def source(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(InFlightRecord)


def in_flight_record(source: TopicPartition, record: LogRecord) -> InFlightRecord:
    headers = tuple((name, bytes(value)) for name, value in record.headers)
    return InFlightRecord(
        source.topic, source.partition, record.offset, record.timestamp, record.key, record.value, headers
    )


def encode_in_flight(records: Iterable[InFlightRecord]) -> bytes:
    parts: list[bytes] = []
    for record in records:
        raw = _encoder.encode(record)
        parts += (_LENGTH.pack(len(raw)), raw)
    return b"".join(parts)


def decode_in_flight(raw: bytes, where: str) -> Iterator[InFlightRecord]:
    """In the order of processing: by input partition and offset."""
    at = 0
    try:
        while at < len(raw):
            (length,) = _LENGTH.unpack_from(raw, at)
            at += _LENGTH.size
            yield _decoder.decode(raw[at : at + length])
            at += length
    except (struct.error, msgspec.MsgspecError) as error:
        raise CheckpointDamagedError(where, f"its records cannot be read: {error}") from error
