"""The contract of every store."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from threading import Thread

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from tidegate.state.base import Change, SnapshotStore, Store, StorePosition
from tidegate.state.memory import MemoryStore
from tidegate.state.rocksdb import RocksStore
from tidegate.state.write_buffer import WriteBuffer

ALL = (b"", b"\xff\xff")

MAKERS: dict[str, Callable[[Path], Store]] = {
    "memory": lambda _: MemoryStore(),
    "rocksdb": RocksStore,
    "buffered": lambda path: WriteBuffer(RocksStore(path), entries=3, applies=4, piece=2),
}


@pytest.fixture(params=MAKERS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    made = MAKERS[request.param](tmp_path / "store")
    yield made
    made.close()


def at(offset: int) -> StorePosition:
    return StorePosition("lineage", offset, 1_700_000_000_000 + offset)


def key(number: int) -> bytes:
    return b"\x02%06d" % number


def test_a_new_store_is_empty(store: Store) -> None:
    assert store.position is None
    assert store.get(b"\x01") is None
    assert list(store.scan(*ALL)) == []


def test_applied_changes_are_read(store: Store) -> None:
    store.apply([(b"\x02a", b"1"), (b"\x02b", b"")], at(7))

    assert (store.get(b"\x02a"), store.get(b"\x02b"), store.get(b"\x02c")) == (b"1", b"", None)
    assert store.position == at(7)


def test_a_reverse_scan_begins_with_the_last_key_and_is_lazy(store: Store) -> None:
    store.apply([(key(number), b"%d" % number) for number in range(2000)], at(1))
    store.flush()
    store.apply([(key(1999), None), (key(1000), b"new"), (key(2001), b"last")], at(2))

    assert list(islice(store.scan(*ALL, reverse=True), 2)) == [(key(2001), b"last"), (key(1998), b"1998")]
    assert list(store.scan(key(998), key(1002), reverse=True)) == [
        (key(1001), b"1001"),
        (key(1000), b"new"),
        (key(999), b"999"),
        (key(998), b"998"),
    ]
    assert list(store.scan(key(1002), key(998), reverse=True)) == []


def test_many_keys_can_be_read_at_once(store: Store) -> None:
    store.apply([(key(1), b"one"), (key(2), b""), (key(3), b"three")], at(1))
    store.apply([(key(3), None), (key(4), b"four")], at(2))
    assert store.get_many([key(4), key(0), key(2), key(3), key(1), key(4)]) == [
        b"four",
        None,
        b"",
        None,
        b"one",
        b"four",
    ]
    assert store.get_many([]) == []


def test_none_removes_a_key(store: Store) -> None:
    store.apply([(b"\x02a", b"1"), (b"\x02b", b"2")], at(1))
    store.apply([(b"\x02a", None), (b"\x02never", None)], at(2))

    assert store.get(b"\x02a") is None
    assert list(store.scan(*ALL)) == [(b"\x02b", b"2")]


def test_the_last_change_to_a_key_wins(store: Store) -> None:
    store.apply([(b"\x02a", b"1"), (b"\x02b", b"1"), (b"\x02a", None), (b"\x02b", None), (b"\x02b", b"3")], at(1))

    assert list(store.scan(*ALL)) == [(b"\x02b", b"3")]


def test_a_position_alone_can_be_applied(store: Store) -> None:
    store.apply([], at(3))

    assert store.position == at(3)
    assert list(store.scan(*ALL)) == []


def test_a_store_estimates_its_size(store: Store) -> None:
    store.apply([(key(number), b"1") for number in range(1000)], at(1))

    assert 1000 <= store.approximate_entries() <= 1010


def test_a_failed_batch_changes_nothing(store: Store) -> None:
    def broken() -> Iterator[Change]:
        yield b"\x02a", b"2"
        raise RuntimeError("while encoding")

    store.apply([(b"\x02a", b"1")], at(1))
    with pytest.raises(RuntimeError):
        store.apply(broken(), at(2))

    assert store.get(b"\x02a") == b"1"
    assert store.position == at(1)


def test_a_scan_is_in_order_from_start_to_before_end(store: Store) -> None:
    store.apply([(key(n), b"%d" % n) for n in (5, 3, 9, 1, 7)], at(1))

    assert [value for _, value in store.scan(key(3), key(9))] == [b"3", b"5", b"7"]
    assert list(store.scan(key(9), key(3))) == []
    assert list(store.scan(key(3), key(3))) == []
    assert list(store.scan(key(3), b"")) == []


def test_a_scan_does_not_show_the_position(store: Store) -> None:
    store.apply([(b"\x01", b"first")], at(1))

    assert list(store.scan(*ALL)) == [(b"\x01", b"first")]


def test_a_scan_shows_the_store_at_its_start(store: Store) -> None:
    before = [(key(n), b"old") for n in range(0, 2000, 2)]
    store.apply(before, at(1))

    untouched, begun = store.scan(*ALL), store.scan(*ALL)
    head = list(islice(begun, 700))
    store.apply([(key(n), b"new") for n in range(2000)], at(2))
    store.apply([(key(n), None) for n in range(0, 2000, 3)], at(3))

    assert head + list(begun) == before
    assert list(untouched) == before
    assert store.get(key(1)) == b"new"


def test_an_abandoned_scan_blocks_nothing(store: Store) -> None:
    store.apply([(key(n), b"") for n in range(1000)], at(1))
    scan = store.scan(*ALL)
    next(scan)

    store.wipe()
    store.apply([(key(1), b"again")], at(1))

    assert list(store.scan(*ALL)) == [(key(1), b"again")]


def test_a_wiped_store_is_empty(store: Store) -> None:
    store.apply([(b"\x02a", b"1")], at(5))
    store.flush()
    store.wipe()

    assert store.position is None
    assert store.get(b"\x02a") is None
    assert list(store.scan(*ALL)) == []

    store.apply([(b"\x02b", b"2")], at(1))
    assert store.get(b"\x02b") == b"2"


def test_another_thread_can_flush_while_changes_are_applied(store: Store) -> None:
    failures: list[Exception] = []

    def flush() -> None:
        try:
            for _ in range(20):
                store.flush()
        except Exception as error:
            failures.append(error)

    flusher = Thread(target=flush)
    flusher.start()
    rounds = 0
    while flusher.is_alive() or rounds < 20:
        store.apply([(key(n), b"%d" % rounds) for n in range(200)], at(rounds))
        rounds += 1
    flusher.join()

    assert failures == []
    assert {value for _, value in store.scan(*ALL)} == {b"%d" % (rounds - 1)}


def test_closing_is_idempotent(store: Store) -> None:
    store.close()
    store.close()


keys = st.lists(st.sampled_from([b"\x00", b"\x02", b"a", b"\xff"]), max_size=3).map(
    lambda parts: b"\x02" + b"".join(parts)
)
changes = st.lists(st.tuples(keys, st.none() | st.binary(max_size=3)), max_size=20)


class AgainstADict(RuleBasedStateMachine):
    """Any sequence of calls, with scans open across them, gives what a dict and copies of it would."""

    maker: Callable[[Path], Store]
    scans = Bundle("scans")

    @initialize()
    def begin(self) -> None:
        self.directory = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.store = type(self).maker(Path(self.directory.name))
        self.model: dict[bytes, bytes] = {}
        self.position: StorePosition | None = None
        self.applied = 0

    @rule(changed=changes)
    def apply(self, changed: list[Change]) -> None:
        self.applied += 1
        self.position = at(self.applied)
        self.store.apply(iter(changed), self.position)
        for name, value in changed:
            if value is None:
                self.model.pop(name, None)
            else:
                self.model[name] = value

    @rule(target=scans, start=keys, end=keys, reverse=st.booleans())
    def scan(
        self, start: bytes, end: bytes, reverse: bool
    ) -> tuple[Iterator[tuple[bytes, bytes]], list[tuple[bytes, bytes]]]:
        expected = sorted((pair for pair in self.model.items() if start <= pair[0] < end), reverse=reverse)
        return self.store.scan(start, end, reverse=reverse), expected

    @rule(scan=scans, count=st.integers(1, 3))
    def advance(self, scan: tuple[Iterator[tuple[bytes, bytes]], list[tuple[bytes, bytes]]], count: int) -> None:
        pairs, expected = scan
        assert list(islice(pairs, count)) == expected[:count]
        del expected[:count]

    @rule(scan=consumes(scans))
    def finish(self, scan: tuple[Iterator[tuple[bytes, bytes]], list[tuple[bytes, bytes]]]) -> None:
        assert list(scan[0]) == scan[1]

    @rule()
    def flush(self) -> None:
        self.store.flush()

    @rule(name=keys)
    def get(self, name: bytes) -> None:
        assert self.store.get(name) == self.model.get(name)

    @rule(names=st.lists(keys, max_size=5))
    def get_many(self, names: list[bytes]) -> None:
        assert self.store.get_many(names) == [self.model.get(name) for name in names]

    @invariant()
    def store_equals_model(self) -> None:
        if hasattr(self, "store"):
            assert dict(self.store.scan(*ALL)) == self.model
            assert list(self.store.scan(*ALL, reverse=True)) == sorted(self.model.items(), reverse=True)
            assert self.store.position == self.position

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            self.directory.cleanup()


class MemoryAgainstADict(AgainstADict):
    maker = staticmethod(MAKERS["memory"])


class RocksAgainstADict(AgainstADict):
    maker = staticmethod(MAKERS["rocksdb"])


TestMemoryAgainstADict = MemoryAgainstADict.TestCase
TestRocksAgainstADict = RocksAgainstADict.TestCase
TestMemoryAgainstADict.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestRocksAgainstADict.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)


# --------------------------------------------------------------------------------------------------------- snapshots

HOLDERS: dict[str, Callable[[Path], SnapshotStore]] = {
    "memory": lambda _: MemoryStore(),
    "buffered": lambda path: WriteBuffer(RocksStore(path), entries=3, applies=4, piece=2),
}


def reopened(store: SnapshotStore, directory: Path) -> Store:
    return MemoryStore.load(directory) if isinstance(store, MemoryStore) else RocksStore(directory, read_only=True)


@pytest.fixture(params=HOLDERS)
def holder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SnapshotStore]:
    made = HOLDERS[request.param](tmp_path / "store")
    yield made
    made.close()


def test_a_snapshot_contains_the_store_at_the_time_of_the_request(holder: SnapshotStore, tmp_path: Path) -> None:
    """However the store is buffered, and whatever is applied, read and flushed meanwhile."""
    held: dict[bytes, bytes] = {}
    now: dict[bytes, bytes] = {}
    for round_ in range(30):
        changes: list[Change] = [(key((round_ * 7 + step) % 40), b"%d" % round_) for step in range(5)]
        changes.append((key(round_ % 11), None))
        holder.apply(changes, at(round_))
        for name, value in changes:
            if value is None:
                now.pop(name, None)
            else:
                now[name] = value
        if round_ == 14:
            holder.hold()
            held = dict(now)
        if round_ == 20:
            holder.flush()
        assert dict(holder.scan(*ALL)) == now
        assert [holder.get(key(number)) for number in range(40)] == [now.get(key(number)) for number in range(40)]
        assert holder.get_many([key(3), key(39)]) == [now.get(key(3)), now.get(key(39))]
        within = sorted(item for item in now.items() if key(5) <= item[0] < key(9))
        assert list(holder.scan(key(5), key(9))) == within
        assert list(holder.scan(key(5), key(9), reverse=True)) == within[::-1]

    holder.snapshot(tmp_path / "taken")

    taken = reopened(holder, tmp_path / "taken")
    assert dict(taken.scan(*ALL)) == held
    assert taken.position == at(14)
    taken.close()
    holder.apply([(key(1), b"after")], at(99))
    assert dict(holder.scan(*ALL)) == {**now, key(1): b"after"}
    assert holder.position == at(99)


def test_a_snapshot_is_taken_while_changes_are_applied(holder: SnapshotStore, tmp_path: Path) -> None:
    holder.apply([(key(number), b"before") for number in range(2000)], at(1))
    holder.hold()
    writing = Thread(target=holder.snapshot, args=(tmp_path / "taken",))
    writing.start()
    for round_ in range(200):
        holder.apply([(key(number), b"after") for number in range(round_, 2000, 200)], at(2 + round_))
        assert holder.get(key(round_)) == b"after"
    writing.join()

    taken = reopened(holder, tmp_path / "taken")
    assert set(dict(taken.scan(*ALL)).values()) == {b"before"}
    taken.close()
    assert set(dict(holder.scan(*ALL)).values()) == {b"after"}


def test_an_abandoned_snapshot_changes_nothing(holder: SnapshotStore, tmp_path: Path) -> None:
    holder.apply([(key(1), b"1")], at(1))
    holder.hold()
    holder.apply([(key(2), b"2")], at(2))
    holder.release()
    holder.apply([(key(3), b"3")], at(3))

    assert dict(holder.scan(*ALL)) == {key(1): b"1", key(2): b"2", key(3): b"3"}
    holder.snapshot(tmp_path / "taken")
    taken = reopened(holder, tmp_path / "taken")
    assert len(dict(taken.scan(*ALL))) == 3
    taken.close()
