from __future__ import annotations

import os

import pytest

from tidegate.errors import RecordTooLargeError
from tidegate.logs.base import LogRecord, NewRecord, TopicPartition
from tidegate.logs.kafka.fetched_records import FetchedRecords
from tidegate.logs.kafka.record_batches import BATCH_OVERHEAD, CODECS, PartitionBatches, Producer

SOURCE = TopicPartition("a", 0)


def producer(limit: int = 1000, codec: str = "none") -> Producer:
    return Producer(id=7, epoch=3, transactional=True, codec=CODECS[codec], limit=limit)


def records(count: int, size: int = 100) -> list[NewRecord]:
    return [(b"%d" % number, os.urandom(size), 1000 + number, [("h", b"%d" % number)]) for number in range(count)]


def drain(upload: PartitionBatches) -> list[bytes]:
    """Acknowledge batch after batch."""
    sent: list[bytes] = []
    offset = 50
    while not upload.done:
        sent.append(upload.batch)
        before = upload.sequence
        upload.acknowledge(offset)
        offset += upload.sequence - before
    return sent


@pytest.mark.parametrize("codec", CODECS)
def test_batches_decode_to_the_records_that_were_given(codec: str) -> None:
    given = records(30)
    decoded = [
        record
        for batch in drain(PartitionBatches(producer(codec=codec), SOURCE, given, 0))
        for record in (FetchedRecords(batch, None).next(0) or ([], 0))[0]
    ]
    assert [(r.key, r.value, r.timestamp, list(r.headers)) for r in decoded] == given


def test_no_batch_is_larger_than_the_limit_and_none_is_empty() -> None:
    sizes = [len(batch) for batch in drain(PartitionBatches(producer(limit=1000), SOURCE, records(30), 0))]
    assert len(sizes) > 3
    assert all(100 < size <= 1000 for size in sizes)


def test_the_position_is_after_the_last_record() -> None:
    upload = PartitionBatches(producer(), SOURCE, records(30), 0)
    drain(upload)
    assert upload.position == 50 + 30


def test_sequence_numbers_continue_after_the_last_append_and_wrap_around() -> None:
    upload = PartitionBatches(producer(), SOURCE, records(30), 0)
    drain(upload)
    assert upload.sequence == 30
    last = 2**31 - 1
    upload = PartitionBatches(producer(limit=10_000), SOURCE, records(3), last)
    assert int.from_bytes(upload.batch[53:57], "big") == last
    upload.acknowledge(0)
    assert upload.sequence == 2


def test_a_record_that_fits_into_no_batch_is_refused_before_anything_is_sent() -> None:
    fits = 1000 - BATCH_OVERHEAD - 40
    PartitionBatches(producer(limit=1000), SOURCE, [(None, b"x" * fits, 0, ())], 0)
    with pytest.raises(RecordTooLargeError) as refusal:
        PartitionBatches(producer(limit=1000), SOURCE, [*records(3), (None, b"x" * (fits + 1), 0, ()), *records(3)], 0)
    assert refusal.value.topic == "a"


def test_halving_loses_nothing_and_keeps_the_order_and_the_numbers() -> None:
    given = records(20)
    upload = PartitionBatches(producer(limit=2000), SOURCE, given, 5)
    decoded: list[LogRecord] = []
    offset = halved = 0
    while not upload.done:
        if len(upload.batch) > 500:
            assert upload.single_record is None
            upload.halve()
            halved += 1
            continue
        chunk = FetchedRecords(upload.batch, None).next(0)
        assert chunk is not None
        assert int.from_bytes(upload.batch[53:57], "big") == 5 + len(decoded)
        decoded += chunk[0]
        upload.acknowledge(offset)
        offset += len(chunk[0])
    assert halved > 0
    assert [record.value for record in decoded] == [value for _, value, _, _ in given]


def test_a_single_record_is_known_to_be_alone() -> None:
    [record] = records(1)
    assert PartitionBatches(producer(), SOURCE, [record], 0).single_record == record
    assert PartitionBatches(producer(), SOURCE, records(2), 0).single_record is None
