"""Records that were read are split where a later epoch begins."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidegate.engine.commit.epoch_scan import EpochScan, epoch_of
from tidegate.engine.processing.context import STAMP_HEADER
from tidegate.logs.records import Record

PREFIX = b"app|1|"


def record(offset: int, stamp: bytes | None, *more: tuple[str, bytes]) -> Record:
    headers = (*more, *(((STAMP_HEADER, stamp),) if stamp is not None else ()))
    return Record(offset=offset, timestamp=0, key=b"k", value=b"v", headers=headers)


def sent(*epochs: int) -> list[Record]:
    return [record(offset, b"app|1|task.0|%d" % epoch) for offset, epoch in enumerate(epochs)]


def test_records_are_divided_where_a_later_epoch_begins() -> None:
    assert list(EpochScan("app", "1").split(sent(0, 0, 2, 1, 2, 3))) == [(0, 0, 2), (2, 2, 5), (3, 5, 6)]


def test_a_later_epoch_at_the_start_has_nothing_before_it() -> None:
    assert list(EpochScan("app", "1").split(sent(4, 4))) == [(4, 0, 2)]


def test_an_epoch_seen_before_does_not_split_the_range() -> None:
    scan = EpochScan("app", "1")
    assert list(scan.split(sent(3))) == [(3, 0, 1)]
    assert list(scan.split(sent(3, 2, 3))) == [(0, 0, 3)]


def test_no_records_are_one_empty_part() -> None:
    assert list(EpochScan("app", "1").split([])) == [(0, 0, 0)]


def test_records_from_outside_and_of_other_runs_have_no_epoch() -> None:
    others = [record(0, None), record(1, b"other|1|t.0|9"), record(2, b"app|2|t.0|9"), record(3, None, ("own", b"7"))]
    assert list(EpochScan("app", "1").split(others)) == [(0, 0, 4)]
    assert [epoch_of(found.headers, PREFIX) for found in others] == [None] * 4


def test_a_header_that_resembles_a_stamp_has_no_epoch() -> None:
    for stamp in (b"app|1|", b"app|1|task.0|x", b"app|1|task.0|-1", b"app|1|task.0|" + b"9" * 5000, b""):
        assert epoch_of(record(0, stamp).headers, PREFIX) is None
        assert list(EpochScan("app", "1").split([record(0, stamp)])) == [(0, 0, 1)]


def test_user_headers_next_to_the_stamp_have_no_effect() -> None:
    assert epoch_of(record(0, b"app|1|t.0|5", ("own", b"x")).headers, PREFIX) == 5


@given(st.lists(st.integers(0, 6)))
def test_no_part_holds_a_record_of_a_later_epoch_than_those_before_it_ask_for(epochs: list[int]) -> None:
    records, reached, at = sent(*epochs), 0, 0
    for epoch, start, end in EpochScan("app", "1").split(records):
        assert start == at
        reached, at = max(reached, epoch), end
        assert all(found <= reached for found in epochs[start:end])
    assert at == len(epochs)
