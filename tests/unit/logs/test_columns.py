"""Records as columns: iterating over records and reading the columns give the same."""

from __future__ import annotations

import pytest

from tidegate.errors import EncodeError
from tidegate.logs.base import NewRecord, TopicPartition
from tidegate.logs.records import NewRecordColumns, Record, RecordColumns, check_keys, read_columns, select

STAMP = (("stamp", b"1"),)
RECORDS = [
    Record(b"a", b"1", 10, (), 3),
    Record(None, b"2", 11, STAMP, 4),
    Record(b"c", None, 9, (), 7),
    Record(b"", b"", 0, (("h", b""), ("h", b"x")), 8),
]


def test_rows_are_the_records_that_they_were_made_of() -> None:
    rows = RecordColumns.of(RECORDS)
    assert [*rows] == [rows[index] for index in range(4)] == RECORDS
    assert rows[-1] == RECORDS[-1]
    assert [*rows[1:3]] == RECORDS[1:3]
    assert [*RecordColumns.of([])] == [*rows[4:]] == []


def test_rows_grow_and_shrink_in_all_their_columns() -> None:
    rows = RecordColumns.of(RECORDS[:1])
    rows.extend(RecordColumns.of(RECORDS[1:]))
    assert [*rows] == RECORDS
    wanted = [True, False, False, True]
    assert [*select(rows, wanted)] == [*select(RECORDS, wanted)] == [RECORDS[0], RECORDS[3]]


@pytest.mark.parametrize("records", [RECORDS, RecordColumns.of(RECORDS)], ids=["records", "rows"])
def test_columns_are_read_of_either(records: RecordColumns | list[Record]) -> None:
    assert read_columns(records, 1, 3) == ([None, b"c"], [b"2", None], [11, 9])
    assert read_columns(records, 3, 9) == ([b""], [b""], [0])


@pytest.mark.parametrize(
    "records",
    [
        [],
        [(b"a", b"1", 10, STAMP), (b"b", None, 11, STAMP)],
        [(b"a", b"1", 10, STAMP), (b"b", None, 11, ())],
        [(None, b"1", 10, ())],
    ],
    ids=["none", "with the same headers", "with different headers", "one"],
)
def test_new_records_are_the_same_as_columns(records: list[NewRecord]) -> None:
    columns = NewRecordColumns.of(records)
    assert [*columns] == [columns[index] for index in range(len(records))] == records
    assert [*columns[1:]] == records[1:]
    assert NewRecordColumns.of(columns) is columns


def test_values_shared_by_all_new_records_are_stored_once() -> None:
    shared = NewRecordColumns.of([(b"a", b"1", 10, STAMP), (b"b", b"2", 11, (("stamp", b"1"),))])
    assert (shared.headers, shared.each) == (STAMP, None)
    assert [*NewRecordColumns([b"a", b"b"], [b"1", None], 7)] == [(b"a", b"1", 7, ()), (b"b", None, 7, ())]


@pytest.mark.parametrize("make", [list, NewRecordColumns.of], ids=["records", "columns"])
def test_a_compacted_topic_takes_no_record_without_a_key(make: type[list[NewRecord]]) -> None:
    source = TopicPartition("c", 0)
    check_keys(source, make([(b"a", b"1", 0, ()), (b"", b"1", 0, ())]))
    with pytest.raises(EncodeError, match="has no key"):
        check_keys(source, make([(b"a", b"1", 0, ()), (None, b"1", 0, ())]))
