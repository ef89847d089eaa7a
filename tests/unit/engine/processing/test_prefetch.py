"""Prefetched state: whenever it arrives, handlers read the newest value."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

import pytest

from tidegate.codecs import codec_for
from tidegate.engine.keyed_state.store_keys import StoreKeys
from tidegate.engine.processing.input import Chunk
from tidegate.engine.processing.prefetch import Prefetch
from tidegate.errors import StoreError
from tidegate.logs.records import Record, RecordColumns
from tidegate.state.base import Changes, StorePosition
from tidegate.state.cells import ValueCells
from tidegate.state.memory import MemoryStore
from tidegate.state.overlay import ABSENT
from tidegate.state.write_buffer import WriteBuffer


class Later(Executor):
    """An executor with two manual steps: to run the work, and to deliver the results."""

    def __init__(self) -> None:
        self._given: list[tuple[Future[Any], Callable[[], Any]]] = []
        self._done: list[tuple[Future[Any], Any]] = []

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **options: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._given.append((future, lambda: function(*arguments, **options)))
        return future

    def __len__(self) -> int:
        return len(self._given)

    def work(self) -> None:
        for future, function in self._given:
            try:
                self._done.append((future, function()))
            except Exception as error:
                future.set_exception(error)
        self._given = []

    async def deliver(self) -> None:
        for future, result in self._done:
            future.set_result(result)
        self._done = []
        for _ in range(3):
            await asyncio.sleep(0)


class Slow(MemoryStore):
    """Counts what it is asked."""

    asked = 0
    broken = False

    def get(self, key: bytes) -> bytes | None:
        self.asked += 1
        return super().get(key)

    def get_many(self, keys: Any) -> list[bytes | None]:
        self.asked += len(keys)
        if self.broken:
            raise StoreError("on purpose")
        return super().get_many(keys)


class World:
    """A state of many numbers, most of which are on disk."""

    def __init__(self, keys: int) -> None:
        self.keys = [b"%d" % number for number in range(keys)]
        self.place = StoreKeys(b"\x02", "events", 0, 0)
        self.below, self.later = Slow(), Later()
        self.store = WriteBuffer(self.below, entries=300, applies=5, piece=50)
        self.expected = dict.fromkeys(self.keys, 0)
        self.below.apply([(self.place(key), b"0") for key in self.keys], StorePosition("x", 1, 1))
        self.cells = ValueCells(self.store, codec_for(int), self.place)
        self.prefetch = Prefetch(self.cells, self.store, self.later)
        self.offset = 1

    def see_that_much_is_missing(self) -> None:
        """Handlers look at what is not in memory."""
        for start in (0, 100):
            for entry, key in zip(self.cells.gather(self.keys[start : start + 100]), self.keys[start:], strict=False):
                _ = entry or self.cells.entry(key)

    def chunk(self, keys: list[bytes]) -> Chunk:
        records = RecordColumns.of([Record(key, b"", 0, (), number) for number, key in enumerate(keys)])
        return Chunk(None, records, len(keys))  # type: ignore[arg-type]

    def handle(self, key: bytes, add: int) -> None:
        entry = self.cells.entry(key)
        assert entry.value == self.expected[key]
        entry.value += add
        self.expected[key] += add
        self.cells.mark_dirty(entry)

    def commit(self, *, rotate: bool) -> None:
        changes = Changes()
        self.cells.freeze(changes)
        self.offset += 1
        self.store.apply(changes, StorePosition("x", self.offset, 1))
        if rotate:
            self.cells.rotate()


async def test_prefetched_state_is_not_read_again() -> None:
    world = World(2000)
    world.see_that_much_is_missing()
    world.prefetch.begin(world.chunk(world.keys[500:1500]))
    world.later.work()
    await world.later.deliver()
    asked = world.below.asked
    assert [entry.value for entry in map(world.cells.entry, world.keys[500:1500])] == [0] * 1000
    assert world.below.asked == asked > 1000


async def test_state_in_memory_is_not_prefetched() -> None:
    world = World(2000)
    world.see_that_much_is_missing()
    for key in world.keys[:1000]:
        world.cells.entry(key)
    world.cells.gather(world.keys[:1000])
    world.prefetch.begin(world.chunk(world.keys[:1000]))
    world.prefetch.begin(world.chunk(world.keys[1000:]))
    assert len(world.later) == 0


async def test_an_empty_store_is_not_prefetched() -> None:
    world = World(0)
    world.below.wipe()
    world.keys = [b"%d" % number for number in range(2000)]
    world.see_that_much_is_missing()
    world.prefetch.begin(world.chunk(world.keys[500:1500]))
    assert len(world.later) == 0


async def test_keys_in_progress_are_not_prefetched() -> None:
    world = World(2000)
    world.see_that_much_is_missing()
    chunk = world.chunk(world.keys[500:1500])
    world.prefetch.begin(chunk)
    chunk.index = 1
    asked = world.below.asked
    world.later.work()
    await world.later.deliver()
    assert world.below.asked == asked


async def test_a_failed_prefetch_is_left_to_the_handlers_read() -> None:
    world = World(2000)
    world.see_that_much_is_missing()
    world.prefetch.begin(world.chunk(world.keys[500:1500]))
    world.below.broken = True
    world.later.work()
    await world.later.deliver()
    await world.prefetch.close()
    world.below.broken = False
    world.handle(world.keys[700], 1)


async def test_keys_that_do_not_belong_here_are_left_out() -> None:
    world = World(2000)
    world.place = world.cells.base = StoreKeys(b"\x02", "events", 2, 0)
    world.cells._eager = True  # those that do not belong here cannot be looked at
    world.cells._looked_up = world.cells._missed = 100
    world.prefetch.begin(world.chunk(world.keys[500:1500]))
    world.later.work()
    await world.later.deliver()
    assert 300 < sum(entry is not None for entry in world.cells.gather(world.keys[500:1500])) < 700


@pytest.mark.parametrize("seed", range(30))
async def test_whenever_it_arrives_the_newest_value_counts(seed: int) -> None:
    """Handlers, commits, and letting go of what is not used, at random, between asking, reading and arriving."""
    rng, world = random.Random(seed), World(1200)
    world.see_that_much_is_missing()
    began = 0
    for _ in range(400):
        match rng.randrange(10):
            case 0:
                world.prefetch._active = True
                world.prefetch.begin(world.chunk(rng.choices(world.keys, k=300)))
                began += len(world.later) > 0
            case 1:
                world.later.work()
            case 2:
                await world.later.deliver()
            case 3 | 4:
                world.commit(rotate=rng.random() < 0.5)
            case _:
                for key in rng.choices(world.keys, k=20):
                    world.handle(key, rng.randrange(3))
    assert began > 10
    world.later.work()
    await world.later.deliver()
    for key in world.keys:
        world.handle(key, 0)
    assert all(entry is None or entry.value is not ABSENT for entry in world.cells.gather(world.keys))
