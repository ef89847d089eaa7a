"""Records on their way to one partition: encoded into record batches that a broker takes."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from tidegate.logs.base import NewRecord, TopicPartition
from tidegate.logs.records import check_size

__all__ = ("BATCH_OVERHEAD", "CODECS", "Producer", "Upload")

BATCH_OVERHEAD: Final = 61
"""What a batch costs besides its records."""
CODECS: Final = {
    "none": DefaultRecordBatch.CODEC_NONE,
    "gzip": DefaultRecordBatch.CODEC_GZIP,
    "snappy": DefaultRecordBatch.CODEC_SNAPPY,
    "lz4": DefaultRecordBatch.CODEC_LZ4,
    "zstd": DefaultRecordBatch.CODEC_ZSTD,
}
_LAST_SEQUENCE: Final = 0x7FFFFFFF


@dataclass(frozen=True, kw_only=True)
class Producer:
    """What a broker knows a writer by, and how that writer encodes."""

    id: int
    epoch: int
    transactional: bool
    codec: int
    limit: int
    """The largest batch, in bytes."""


class _Batch(NamedTuple):
    raw: bytes
    records: int


class Upload:
    """The records of one append for one partition. One batch is out at a time, so their order is kept."""

    def __init__(self, producer: Producer, source: TopicPartition, records: Sequence[NewRecord], sequence: int) -> None:
        """RecordTooLargeError if one does not fit into a batch of its own."""
        self.source = source
        self.sequence = sequence
        """The number of the next record: by it the broker knows what it has already."""
        self.position = 0
        """After the last record that was acknowledged."""
        self._producer, self._records, self._limit = producer, records, producer.limit
        self._acknowledged = 0
        self._batches = self._encode()

    @property
    def done(self) -> bool:
        return not self._batches

    @property
    def batch(self) -> bytes:
        """The next one to be sent; the same until it is acknowledged."""
        return self._batches[0].raw

    @property
    def alone(self) -> NewRecord | None:
        """The record of the next batch, if it is a single one."""
        return self._records[self._acknowledged] if self._batches[0].records == 1 else None

    def acknowledge(self, base_offset: int) -> None:
        count = self._batches.popleft().records
        self.position = base_offset + count
        self._acknowledged += count
        self.sequence = _after(self.sequence, count)

    def halve(self) -> None:
        """The next batch is more than the broker takes at once: try with less."""
        self._limit = len(self.batch) // 2
        self._batches = self._encode()

    def _encode(self) -> deque[_Batch]:
        records = self._records[self._acknowledged :] if self._acknowledged else self._records
        sequence, batches = self.sequence, deque[_Batch]()
        while records:
            batch = self._encode_batch(records, sequence)
            if batch.records == 1:  # the first one of a batch is taken whatever its size
                check_size(self.source.topic, records[0], self._producer.limit - BATCH_OVERHEAD)
            batches.append(batch)
            sequence = _after(sequence, batch.records)
            records = records[batch.records :]
        return batches

    def _encode_batch(self, records: Sequence[NewRecord], sequence: int) -> _Batch:
        producer = self._producer
        builder = DefaultRecordBatchBuilder(
            2,
            producer.codec,
            is_transactional=producer.transactional,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            base_sequence=sequence,
            batch_size=self._limit,
        )
        append, count, none = builder.append, 0, list[tuple[str, bytes]]()
        for key, value, timestamp, headers in records:
            if append(count, timestamp, key, value, list(headers) if headers else none) is None:
                break
            count += 1
        return _Batch(bytes(builder.build()), count)


def _after(sequence: int, count: int) -> int:
    """Numbers begin anew after the last one that Kafka has."""
    return (sequence + count) & _LAST_SEQUENCE
