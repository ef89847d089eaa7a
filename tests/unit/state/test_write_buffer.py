"""The buffer over a store: what it saves, and that a replay mends what a crash leaves behind."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.state.base import Change, StorePosition
from tidegate.state.memory import MemoryStore
from tidegate.state.write_buffer import WriteBuffer

ALL = (b"\x01", b"\xff")


def at(offset: int) -> StorePosition:
    return StorePosition("lineage", offset, offset)


class CountingStore(MemoryStore):
    """Counts the changes that reach it."""

    def __init__(self) -> None:
        super().__init__()
        self.written = 0

    def apply(self, changes: Iterable[Change], position: StorePosition) -> None:
        complete = list(changes)
        self.written += len(complete)
        super().apply(complete, position)


def test_a_key_that_changes_with_every_commit_is_written_once() -> None:
    below = CountingStore()
    store = WriteBuffer(below, entries=100, applies=10)

    for offset in range(10):
        store.apply([(b"\x02busy", b"%d" % offset)], at(offset))
    assert not store.pass_on()

    assert below.written == 1
    assert below.get(b"\x02busy") == b"9"
    assert below.position == at(9)


def test_large_changes_are_passed_on_in_pieces() -> None:
    below = CountingStore()
    store = WriteBuffer(below, entries=10, applies=100, piece=4)

    store.apply([(b"\x02%02d" % number, b"x") for number in range(10)], at(1))
    assert below.written == 0
    assert not store.pass_on(), "no more is due"
    assert below.written == 4
    assert not store.pass_on()
    assert below.written == 4
    assert store.get(b"\x0209") == b"x"  # although the store below does not have it yet

    store.apply([(b"\x02late", b"y")], at(2))
    store.apply([], at(3))
    assert below.written == 8, "what is due and was not passed on is passed on by the next one"
    store.apply([], at(3))
    assert below.written == 10
    assert below.position == at(1)
    assert store.position == at(3)


def test_flush_passes_on_everything() -> None:
    below = CountingStore()
    store = WriteBuffer(below, entries=10, applies=100, piece=4)
    store.apply([(b"\x02%02d" % number, b"x") for number in range(10)], at(1))
    store.apply([(b"\x02late", b"y")], at(2))

    store.flush()

    assert below.position == at(2)
    assert len(list(below.scan(*ALL))) == 11


def test_a_snapshot_is_of_when_the_store_was_held_however_much_was_passed_on(tmp_path: Path) -> None:
    below = MemoryStore()
    store = WriteBuffer(below, entries=10, applies=100, piece=4)
    store.apply([(b"\x02%02d" % number, b"old") for number in range(10)], at(1))
    store.pass_on()
    store.apply([(b"\x0203", b"new"), (b"\x0205", None)], at(2))

    store.hold()
    store.apply([(b"\x0203", b"newest"), (b"\x0207", None)], at(3))
    assert store.get_many([b"\x0203", b"\x0205", b"\x0207", b"\x0208"]) == [b"newest", None, None, b"old"]
    store.snapshot(tmp_path / "snapshot")

    assert below.position == at(2)
    assert dict(below.scan(*ALL)) == {b"\x02%02d" % n: b"new" if n == 3 else b"old" for n in range(10) if n != 5}
    assert store.get(b"\x0203") == b"newest"
    assert store.get(b"\x0207") is None
    assert store.position == at(3)


def test_a_snapshot_counts_as_a_flush_once_it_is_written(tmp_path: Path) -> None:
    store = WriteBuffer(MemoryStore())
    store.apply([(b"\x02a", b"x")], at(1))
    store.flush()
    assert store.flushes == 1

    store.hold()
    assert store.flushes == 1
    store.snapshot(tmp_path / "snapshot")
    assert store.flushes == 2

    with pytest.raises(FileExistsError):
        store.snapshot(tmp_path / "snapshot")
    assert store.flushes == 2
    assert not store.held


def test_a_reader_never_misses_changes_flushed_by_another_thread() -> None:
    below = MemoryStore()
    store = WriteBuffer(below, entries=50, applies=3, piece=3)
    keys = [b"\x02%02d" % number for number in range(40)]
    over = threading.Event()

    def flush() -> None:
        while not over.is_set():
            store.flush()

    thread = threading.Thread(target=flush)
    thread.start()
    try:
        for offset in range(1, 1500):
            store.apply([(key, b"%d" % offset) for key in keys], at(offset))
            store.pass_on()
            assert {store.get(key) for key in keys} == {b"%d" % offset}
            assert {*store.get_many(keys)} == {b"%d" % offset}
    finally:
        over.set()
        thread.join()


commits = st.lists(
    st.lists(st.tuples(st.sampled_from([b"\x02a", b"\x02b", b"\x02c", b"\x02d"]), st.none() | st.binary(max_size=2))),
    max_size=12,
)


@given(commits, st.integers(1, 4), st.integers(1, 4), st.integers(1, 3), st.integers(0, 3))
def test_whatever_is_lost_in_a_crash_a_replay_brings_back(
    log: list[list[Change]], entries: int, applies: int, piece: int, passes: int
) -> None:
    below = MemoryStore()
    store = WriteBuffer(below, entries=entries, applies=applies, piece=piece)
    fold: dict[bytes, bytes] = {}
    for offset, changes in enumerate(log, 1):
        store.apply(changes, at(offset))
        for _ in range(passes):
            store.pass_on()
        for key, value in changes:
            fold.pop(key, None) if value is None else fold.__setitem__(key, value)

    # The crash: the buffer is gone, the store below is what it is. The replay starts from its position.
    after = WriteBuffer(below, entries=entries, applies=applies, piece=piece)
    start = after.position.offset if after.position is not None else 0
    for offset, changes in enumerate(log[start:], start + 1):
        after.apply(changes, at(offset))

    assert dict(after.scan(*ALL)) == fold
