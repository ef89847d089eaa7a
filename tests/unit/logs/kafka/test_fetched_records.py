from __future__ import annotations

import struct

import pytest
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from tidegate.logs.kafka.fetched_records import FetchedRecords


def batch(base: int, *values: bytes, producer: int = -1, transactional: bool = False) -> bytes:
    """A record batch as it lies in the log at an offset."""
    builder = DefaultRecordBatchBuilder(
        2,
        0,
        is_transactional=transactional,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=0,
        batch_size=1 << 20,
    )
    for number, value in enumerate(values):
        builder.append(number, 1000, b"k", value, [])
    raw = bytearray(builder.build())
    raw[:8] = struct.pack(">q", base)
    return bytes(raw)


def marker(base: int, producer: int, *, commit: bool) -> bytes:
    """What ends a transaction."""
    builder = DefaultRecordBatchBuilder(
        2, 0, is_transactional=True, producer_id=producer, producer_epoch=0, base_sequence=-1, batch_size=1 << 20
    )
    builder.append(0, 1000, struct.pack(">hh", 0, int(commit)), b"\0" * 6, [])
    raw = bytearray(builder.build())
    raw[:8] = struct.pack(">q", base)
    attributes = struct.unpack(">h", raw[21:23])[0] | 0x20
    raw[21:23] = struct.pack(">h", attributes)
    raw[17:21] = struct.pack(">I", crc(bytes(raw[21:])))
    return bytes(raw)


def crc(data: bytes) -> int:
    from aiokafka.record.util import calc_crc32c

    value: int = calc_crc32c(data)
    return value


def read(chunk: FetchedRecords, position: int = 0) -> tuple[list[bytes | None], int]:
    found: list[bytes | None] = []
    while (decoded := chunk.next(position)) is not None:
        records, position = decoded
        found += [record.value for record in records]
    return found, position


def test_several_batches_are_read_in_sequence() -> None:
    chunk = FetchedRecords(batch(0, b"0", b"1") + batch(5, b"5"), None)
    assert chunk.next_offset == 6
    assert read(chunk) == ([b"0", b"1", b"5"], 6)


def test_a_batch_that_is_cut_off_counts_as_not_there() -> None:
    whole, cut = batch(0, b"0", b"1"), batch(2, b"2")
    for length in range(len(cut)):
        chunk = FetchedRecords(whole + cut[:length], None)
        assert chunk.next_offset == 2
        assert read(chunk) == ([b"0", b"1"], 2)


def test_a_truncated_batch_returns_no_records() -> None:
    chunk = FetchedRecords(batch(0, b"0")[:-1], None)
    assert chunk.next_offset is None
    assert chunk.empty


def test_reading_begins_inside_of_a_batch() -> None:
    assert read(FetchedRecords(batch(3, b"3", b"4", b"5"), None), 4) == ([b"4", b"5"], 6)


def test_markers_are_passed_but_not_returned() -> None:
    raw = batch(0, b"0", producer=1, transactional=True) + marker(1, 1, commit=True)
    assert read(FetchedRecords(raw, None)) == ([b"0"], 2)


def test_aborted_records_are_skipped_over() -> None:
    raw = (
        batch(0, b"a0", producer=1, transactional=True)
        + batch(1, b"b0", producer=2, transactional=True)
        + batch(2, b"a1", producer=1, transactional=True)
        + marker(3, 1, commit=False)
        + marker(4, 2, commit=True)
        + batch(5, b"a2", producer=1, transactional=True)
        + marker(6, 1, commit=True)
        + batch(7, b"plain", producer=1)
        + batch(8, b"b1", producer=2, transactional=True)
        + marker(9, 2, commit=False)
    )
    assert read(FetchedRecords(raw, [(2, 8), (1, 0)])) == ([b"b0", b"a2", b"plain"], 10)


def test_a_transaction_aborted_from_before_the_fetch_is_filtered() -> None:
    raw = batch(10, b"aborted", producer=1, transactional=True) + marker(11, 1, commit=False)
    assert read(FetchedRecords(raw, [(1, 3)]), 10) == ([], 12)


def test_a_changed_byte_is_noticed() -> None:
    raw = bytearray(batch(0, b"value"))
    raw[-3] ^= 1
    with pytest.raises(CorruptRecordException, match="checksum"):
        FetchedRecords(bytes(raw), None).next(0)
