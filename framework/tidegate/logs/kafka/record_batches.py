"""Encodes the records of an append for one partition into record batches."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from tidegate.logs.base import NewRecord, TopicPartition
from tidegate.logs.records import check_size

__all__ = ("BATCH_OVERHEAD", "CODECS", "PartitionBatches", "Producer")

BATCH_OVERHEAD: Final = 61
"""Bytes of a batch besides its records."""
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
    """The producer id and epoch of a writer, and how it encodes."""

    id: int
    epoch: int
    transactional: bool
    codec: int
    limit: int
    """The largest batch, in bytes."""


class _Batch(NamedTuple):
    raw: bytes
    records: int


class PartitionBatches:
    """The records of one append for one partition. One batch is in flight at a time, which keeps the order."""

    def __init__(self, producer: Producer, source: TopicPartition, records: Sequence[NewRecord], sequence: int) -> None:
        """RecordTooLargeError: a record does not fit into a batch of its own."""
        self.source = source
        self.sequence = sequence
        """The sequence number of the next record, by which the broker detects duplicates."""
        self.position = 0
        """The position after the last acknowledged record."""
        self._producer, self._records, self._limit = producer, records, producer.limit
        self._acknowledged = 0
        self._batches = self._encode()

    @property
    def done(self) -> bool:
        return not self._batches

    @property
    def batch(self) -> bytes:
        """The next batch to send; the same until it is acknowledged."""
        return self._batches[0].raw

    @property
    def single_record(self) -> NewRecord | None:
        """The record of the next batch, if it contains only one."""
        return self._records[self._acknowledged] if self._batches[0].records == 1 else None

    def acknowledge(self, base_offset: int) -> None:
        count = self._batches.popleft().records
        self.position = base_offset + count
        self._acknowledged += count
        self.sequence = _after(self.sequence, count)

    def halve(self) -> None:
        """The broker refuses the size of the next batch: encode again with half the limit."""
        self._limit = len(self.batch) // 2
        self._batches = self._encode()

    def _encode(self) -> deque[_Batch]:
        records = self._records[self._acknowledged :] if self._acknowledged else self._records
        sequence, batches = self.sequence, deque[_Batch]()
        while records:
            batch = self._encode_batch(records, sequence)
            if batch.records == 1:  # the builder accepts the first record of a batch whatever its size
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
    """Sequence numbers wrap around."""
    return (sequence + count) & _LAST_SEQUENCE
