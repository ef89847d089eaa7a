"""The result of a fetch for one partition: record batches, decoded one at a time when they are read."""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Any, Final

from aiokafka.errors import CorruptRecordException
from aiokafka.record.memory_records import MemoryRecords

from tidegate.logs.base import LogRecord

__all__ = ("FetchedRecords",)

_HEAD: Final = Struct(">qi4xB6xi")
"""The header of a batch: base offset, length of the rest, format, last offset delta."""
_LENGTH: Final = 12


class FetchedRecords:
    """Raw bytes until they are read, which keeps prefetched data small. Decoding a batch is one call into aiokafka's
    compiled code, and its records satisfy LogRecord: no Python code runs per record."""

    __slots__ = ("_aborted", "_aborting", "_batches", "next_offset", "size")

    def __init__(self, raw: bytes, aborted: Iterable[tuple[int, int]] | None) -> None:
        self.size = len(raw)
        self.next_offset = _next_offset(raw)
        """The position of the next fetch; None: there is no complete batch."""
        self._batches = MemoryRecords(raw)
        self._aborted = sorted(aborted or (), key=lambda transaction: transaction[1], reverse=True)
        """Producer id and first offset of aborted transactions, the lowest offset last."""
        self._aborting: set[int] = set()
        """Producer ids whose records are skipped, until the marker that ends their aborted transaction."""

    @property
    def empty(self) -> bool:
        return not self._batches.has_next()

    def next(self, position: int) -> tuple[list[LogRecord], int] | None:
        """The committed records of the next batch from `position` on, possibly none, and the position after the batch.
        None: there is no further batch."""
        if not self._batches.has_next():
            return None
        batch = self._batches.next_batch()
        if not batch.validate_crc():
            raise CorruptRecordException(f"a record batch at or after offset {position} does not match its checksum")
        if self._skips(batch):
            return [], batch.next_offset
        records = list(batch)
        if records and records[0].offset < position:  # a broker returns whole batches, also for a position inside one
            records = [record for record in records if record.offset >= position]
        return records, batch.next_offset

    def _skips(self, batch: Any) -> bool:
        """Whether a batch is skipped: a marker, or part of an aborted transaction."""
        aborted, base = self._aborted, batch.base_offset
        while aborted and aborted[-1][1] <= base:
            self._aborting.add(aborted.pop()[0])
        if batch.is_control_batch:
            self._aborting.discard(batch.producer_id)
            return True
        return bool(self._aborting) and batch.is_transactional and batch.producer_id in self._aborting


def _next_offset(raw: bytes) -> int | None:
    """The offset after the last complete batch: a broker truncates the last one at its size limit."""
    found, at, end = None, 0, len(raw)
    unpack = _HEAD.unpack_from
    while at + _HEAD.size <= end:
        first, length, form, last = unpack(raw, at)
        at += _LENGTH + length
        if at > end:
            break
        found = first + (last if form >= 2 else 0) + 1
    return found
