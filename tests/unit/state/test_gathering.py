"""Entries of many keys at a time: found in memory, else loaded with one call, if handlers look at them at all."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Annotated

import pytest

from tests.support import Bench
from tidegate import Context, Default, ValueState
from tidegate.codecs import codec_for
from tidegate.errors import DecodeError, MisplacedKeyError
from tidegate.state.base import StorePosition
from tidegate.state.cells import ValueCells
from tidegate.state.memory import MemoryStore
from tidegate.state.overlay import Entry


class CountingStore(MemoryStore):
    """Counts how often it is asked, for one key and for many."""

    def __init__(self) -> None:
        super().__init__()
        self.single = self.many = 0

    def get(self, key: bytes) -> bytes | None:
        self.single += 1
        return super().get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        self.many += 1
        return [self._data.get(key) for key in keys]


class Place:
    def __call__(self, key: bytes) -> bytes:
        if key == b"stranger":
            raise MisplacedKeyError("events", 0, 1, key)
        return b"\x02" + key

    def many(self, keys: Sequence[bytes]) -> list[bytes]:
        return [self(key) for key in keys]


@pytest.fixture
def store() -> CountingStore:
    store = CountingStore()
    store.apply([(b"\x02%d" % number, b"%d" % number) for number in range(100)], StorePosition("x", 1, 1))
    return store


@pytest.fixture
def cells(store: CountingStore) -> ValueCells:
    return ValueCells(store, codec_for(int), Place())


def numbers(entries: Sequence[Entry | None]) -> list[int | None]:
    return [None if entry is None else entry.value for entry in entries]


def test_state_read_by_handlers_is_prefetched_in_one_call(store: CountingStore, cells: ValueCells) -> None:
    assert numbers(cells.gather([b"0", b"1"])) == [None, None]  # nobody knows yet if they will be looked at
    cells.entry(b"0")
    cells.entry(b"1")
    assert (store.single, store.many) == (2, 0)

    assert numbers(cells.gather([b"1", b"2", b"3", b"3"])) == [1, 2, 3, 3]
    assert (store.single, store.many) == (2, 1)
    assert cells.entry(b"3").value == 3
    assert store.single == 2


def test_unread_state_is_not_prefetched(store: CountingStore, cells: ValueCells) -> None:
    for number in range(0, 100, 2):
        assert numbers(cells.gather([b"%d" % number, b"%d" % (number + 1)])) == [None, None]
    assert (store.single, store.many) == (0, 0)


def test_handlers_that_begin_to_look_are_noticed(store: CountingStore, cells: ValueCells) -> None:
    for number in range(100):
        if cells.gather([b"%d" % number]) == [None] and number >= 20:
            cells.entry(b"%d" % number)
    assert store.many > 40


def test_keys_that_cannot_be_loaded_are_left_to_who_looks_at_them(store: CountingStore, cells: ValueCells) -> None:
    store.apply([(b"\x02bad", b"no number")], StorePosition("x", 2, 2))
    cells.load([b"stranger", b"bad", b"7"])
    assert numbers(cells.gather([None, b"stranger", b"bad", b"7"])) == [None, None, None, 7]
    with pytest.raises(MisplacedKeyError):
        cells.entry(b"stranger")
    with pytest.raises(DecodeError):
        cells.entry(b"bad")


def test_the_same_entry_is_found_again_after_rotations(cells: ValueCells) -> None:
    cells.load([b"1", b"2"])
    first = cells.entry(b"1")
    cells.rotate()
    cells.load([b"1"])
    assert cells.entry(b"1") is first
    cells.mark_dirty(first)
    cells.rotate()
    cells.rotate()
    cells.load([b"1"])
    assert cells.entry(b"1") is first  # what is dirty never goes


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_gathered_is_what_each_key_has_and_nothing_else_is_kept(seed: int, cells: ValueCells) -> None:
    rng = random.Random(seed)
    known: list[bytes | None] = [b"%d" % number for number in range(100)]
    odd = [None, b"stranger", b"new"]
    short = 0
    for _ in range(300):
        keys = [rng.choice(odd) if rng.random() < 0.02 else rng.choice(known) for _ in range(rng.choice((1, 2, 30)))]
        for key, entry in zip(keys, cells.gather(keys), strict=True):
            if entry is not None:
                assert key == entry.key
                assert entry is cells.entry(key)
            elif key in known and rng.random() < 0.9:
                assert cells.entry(key).value == int(key)  # type: ignore[arg-type]
        short += cells._mostly_cached
        here = {key for key in known if key is not None and not cells.not_cached([key])}
        assert {*cells._young, *cells._old} - {b"new"} == here
        assert all(cells._young.values())
        assert all(cells._old.values())
        if rng.random() < 0.05:
            cells.rotate()
    assert 30 < short < 300  # both ways to find them were taken


def test_what_is_dropped_is_given_back_in_pieces_until_nothing_is_left(cells: ValueCells) -> None:
    for number in range(20_000):
        cells.entry(b"%d" % number)
    cells.rotate()
    cells.rotate()
    left = [len(cells._dropped)]
    while left[-1]:
        cells.free_evicted()
        left.append(len(cells._dropped))
    assert left == [20_000, 16_000, 12_000, 8_000, 4_000, 0]
    assert numbers(cells.gather([b"7"])) == [None]  # it must be loaded again


@pytest.mark.parametrize("seed", range(3))
def test_counts_are_right_whatever_was_evicted_and_loaded(seed: int) -> None:
    async def handle(ctx: Context, looks: bool, seen: Annotated[ValueState[int], Default(0)]) -> None:
        if looks:
            seen.value += 1

    rng = random.Random(seed)
    expected: Counter[str] = Counter()
    with Bench(handle, app={"cache_entries": 1000}) as bench:
        for share in (1.0, 1.0, 0.1, 0.0, 0.9):  # of the records whose handler looks at its state
            batch = [(f"k{rng.randrange(2500)}", rng.random() < share) for _ in range(2500)]
            bench.put_all(batch)
            expected.update(key for key, looks in batch if looks)
        for key, count in expected.items():
            assert bench.value("seen", key) == count
