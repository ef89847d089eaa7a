"""MapState.range, first and last: what a sorted dict would do, whatever is stored, cached, changed or lost."""

from __future__ import annotations

import asyncio
import tempfile
from bisect import bisect_left
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import Bench
from tidegate import SKIP, TTL, Context, MapState
from tidegate.errors import EncodeError, UsageError
from tidegate.state.layout import keyed_key, keyed_prefix
from tidegate.state.map_keys import map_keys
from tidegate.state.memory import MemoryStore

BERLIN = timezone(timedelta(hours=2))
POOLS: dict[Any, list[Any]] = {
    int: [-(2**70), -300, -5, -1, 0, 1, 2, 9, 10, 11, 100, 2**63, 10**25],
    str: ["", "\x00", "\x00\x00", "a", "a\x00", "a\x00b", "aa", "b", "é", "\uffff", "\U0001f600"],
    tuple[str, int]: [(name, number) for name in ("", "a", "a\x00", "b") for number in (-10, -9, 0, 2, 10)],
    datetime: [
        datetime(2024, 1, 1, hour, tzinfo=zone) for hour in range(0, 24, 3) for zone in (UTC, BERLIN)
    ],
}  # fmt: skip


def keys_at(pool: list[Any], operation: str, places: list[Any]) -> list[Any]:
    """The keys that an operation is about; the second argument of "set" is a value."""
    return [None if place is None else pool[place] for place in (places[:1] if operation == "set" else places)]


def handler(key_type: Any, pool: list[Any]) -> Any:
    async def operate(ctx: Context, event: Any, kept: Any) -> None:
        """Each event is a list of operations on keys by their places in the pool; all that they return is emitted."""
        results: list[Any] = []
        for operation, *arguments in event:
            bounds = keys_at(pool, operation, arguments)
            match operation:
                case "set":
                    kept[bounds[0]] = arguments[1]
                case "pop":
                    kept.pop(bounds[0], None)
                case "wait":
                    await asyncio.sleep(0)
                case "fail":
                    raise ValueError("on purpose")
                case "range":
                    results.append([value for _, value in kept.range(*bounds)])
                case "reverse":
                    results.append([value for _, value in kept.range(*bounds, reverse=True)])
                case "ends":
                    results.append([None if found is None else found[1] for found in (kept.first(), kept.last())])
                case "all":
                    results.append(list(kept.values()))
        ctx.emit(results)

    operate.__annotations__["kept"] = MapState[key_type, int]
    return operate


Step = tuple[Any, ...]


def steps(count: int) -> st.SearchStrategy[list[Any]]:
    place = st.integers(0, count - 1)
    bound = st.none() | place
    operation = st.one_of(
        st.tuples(st.just("set"), place, st.integers(0, 10**6)),
        st.tuples(st.just("set"), place, st.integers(0, 10**6)),
        st.tuples(st.just("pop"), place),
        st.tuples(st.just("range"), bound, bound),
        st.tuples(st.just("reverse"), bound, bound),
        st.just(("ends",)),
        st.just(("all",)),
        st.just(("wait",)),
    )
    event = st.tuples(st.lists(operation, min_size=1, max_size=8), st.booleans())
    return st.lists(st.one_of(event, event, event, st.sampled_from(["crash", "rotate"])), max_size=12)


class Model:
    """A sorted dict."""

    def __init__(self, pool: list[Any]) -> None:
        self._pool, self.kept = pool, dict[Any, int]()

    def operate(self, event: list[Step]) -> Iterator[list[Any]]:
        for operation, *arguments in event:
            bounds = keys_at(self._pool, operation, arguments)
            keys = sorted(self.kept)
            match operation:
                case "set":
                    self.kept[bounds[0]] = arguments[1]
                case "pop":
                    self.kept.pop(bounds[0], None)
                case "range" | "reverse":
                    low = 0 if bounds[0] is None else bisect_left(keys, bounds[0])
                    high = len(keys) if bounds[1] is None else bisect_left(keys, bounds[1])
                    found = [self.kept[key] for key in keys[low:high]]
                    yield found[::-1] if operation == "reverse" else found
                case "ends":
                    yield [self.kept[keys[0]], self.kept[keys[-1]]] if keys else [None, None]
                case "all":
                    yield [self.kept[key] for key in keys]


@pytest.mark.parametrize("store", ["memory", "rocksdb"])
@pytest.mark.parametrize("key_type", POOLS, ids=str)
def test_a_map_state_behaves_like_a_sorted_dict(key_type: Any, store: str) -> None:
    pool = POOLS[key_type]

    @settings(max_examples=40 if store == "memory" else 12, deadline=None)
    @given(steps(len(pool)))
    def check(history: list[Any]) -> None:
        with tempfile.TemporaryDirectory() as directory:
            place = Path(directory) if store == "rocksdb" else None
            with Bench(handler(key_type, pool), service={"errors": SKIP}, directory=place) as bench:
                model, expected = Model(pool), list[Any]()
                for step in history:
                    if step == "crash":
                        bench.crash()
                    elif step == "rotate":
                        for task in bench.engine.tasks.values():
                            for cells in task._backend.all:
                                cells.rotate()
                    else:
                        event, fails = step
                        before = dict(model.kept)
                        results = list(model.operate(event))
                        bench.put("k", [*event, ("fail",)] if fails else event)
                        if fails:
                            model.kept = before
                        else:
                            expected.append(results)
                assert bench.outputs(bench.out) == expected
                assert bench.value("kept", "k") == model.kept
                assert list(bench.value("kept", "k")) == sorted(model.kept)

    check()


class CountingStore(MemoryStore):
    """Counts the entries that are read."""

    reads = 0

    def get(self, key: bytes) -> bytes | None:
        CountingStore.reads += 1
        return super().get(key)

    def scan(self, start: bytes, end: bytes, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        for pair in super().scan(start, end, reverse=reverse):
            CountingStore.reads += 1
            yield pair


async def window(ctx: Context, event: Any, kept: MapState[int, int]) -> None:
    match event:
        case ["fill", start, end]:
            for number in range(start, end):
                kept[number] = number
        case ["range", start, end]:
            ctx.emit([value for _, value in kept.range(start, end)])
        case ["ends"]:
            ctx.emit([kept.first(), kept.last()])
        case ["next", start]:
            ctx.emit(next(kept.range(start)))


def test_a_window_of_a_million_entries_reads_the_window_alone() -> None:
    with Bench(window, cache_entries=1000) as bench:
        bench.put("k", ["fill", 0, 1])
        (task,) = bench.engine.tasks.values()
        assert isinstance(task.store, MemoryStore)
        assert task.store.position is not None
        stem, encode = keyed_key(keyed_prefix("kept"), b"k"), map_keys(int).encode
        entries = [(stem + encode(number), b"%d" % number) for number in range(-500_000, 500_000)]
        task.store.apply(entries, task.store.position)
        task.store.__class__ = CountingStore
        CountingStore.reads = 0
        bench.put("k", ["range", -3, 4])
        bench.put("k", ["ends"])
        bench.put("k", ["next", 77])
        assert bench.outputs(bench.out)[-3:] == [
            [-3, -2, -1, 0, 1, 2, 3],
            [[-500_000, -500_000], [499_999, 499_999]],
            [77, 77],
        ]
        assert CountingStore.reads < 30


async def prune(ctx: Context, event: Any, kept: MapState[int, int]) -> None:
    if isinstance(event, int):
        kept.update({number: number for number in range(event)})
        return
    seen = []
    for number, _ in kept.range(2):
        seen.append(number)
        kept.pop(number)
        kept.pop(number + 1, None)
        kept[number + 1000] = 0
    ctx.emit([seen, len(kept)])


def test_entries_may_be_removed_and_added_during_an_iteration() -> None:
    with Bench(prune) as bench:
        bench.put("k", 10)
        bench.put("k", None)
        assert bench.outputs(bench.out) == [[[2, 4, 6, 8], 6]]
        assert list(bench.value("kept", "k")) == [0, 1, 1002, 1004, 1006, 1008]


async def add_ahead(ctx: Context, event: Any, kept: MapState[int, int]) -> None:
    kept.update(dict.fromkeys(range(0, 40, 2), 0))
    seen = []
    for number, _ in kept.range(reverse=event):
        seen.append(number)
        kept[number + 1] = kept[number - 1] = 1
        assert kept.first() is not None  # which puts the new ones into the order
    ctx.emit([seen, len(kept)])


@pytest.mark.parametrize("reverse", [False, True])
def test_what_is_added_ahead_does_not_come_even_if_other_iterations_see_it(reverse: bool) -> None:
    with Bench(add_ahead) as bench:
        bench.put("k", reverse)
        assert bench.outputs(bench.out) == [[sorted(range(0, 40, 2), reverse=reverse), 41]]


async def short_lived(ctx: Context, event: Any, kept: Annotated[MapState[int, str], TTL(minutes=1)]) -> None:
    if event is not None:
        kept[event] = str(event)
    ctx.emit([kept.first(), [key for key, _ in kept.range(0, 100)], kept.last()])


def test_expired_entries_are_not_in_the_range() -> None:
    with Bench(short_lived) as bench:
        bench.put("k", 10)
        bench.advance(seconds=40)
        bench.put("k", 9)
        bench.put("k", -5)
        assert bench.outputs(bench.out)[-1] == [[-5, "-5"], [9, 10], [10, "10"]]
        bench.advance(seconds=30)
        bench.put("k", None)
        assert bench.outputs(bench.out)[-1] == [[-5, "-5"], [9], [9, "9"]]
        bench.restart()
        bench.advance(seconds=40)
        bench.put("k", None)
        assert bench.outputs(bench.out)[-1] == [None, [], None]


async def by_pair(ctx: Context, event: Any, kept: MapState[tuple[str, int], int]) -> None:
    kept.update({("a", -1): 1, ("a", 10): 2, ("a", 9): 3, ("a\x00", 0): 4, ("b", 0): 5})
    ctx.emit([value for _, value in kept.range(("a",), ("a\x00",))])
    ctx.emit([value for _, value in kept.range(("a", 9), ("b",))])


def test_the_beginning_of_a_tuple_is_a_bound() -> None:
    with Bench(by_pair) as bench:
        bench.put("k")
        assert bench.outputs(bench.out) == [[1, 3, 2], [3, 2, 4]]


class Place(msgspec.Struct, frozen=True):
    street: str
    number: int


async def unordered(ctx: Context, event: Any, kept: MapState[Place, int]) -> None:
    kept.range()


async def wrong_bound(ctx: Context, event: Any, kept: MapState[int, int]) -> None:
    kept.range("a")  # type: ignore[arg-type]


async def wrong_beginning(ctx: Context, event: Any, kept: MapState[tuple[str, int], int]) -> None:
    kept.range((5,))


@pytest.mark.parametrize(
    ("handle", "error", "message"),
    [
        (
            unordered,
            UsageError,
            r"map 'kept' has keys of Place, .* Declare such a key, as in MapState\[tuple\[str, int\]",
        ),
        (wrong_bound, EncodeError, "map 'kept' has keys of int: 'a' is no bound of a range of it"),
        (wrong_beginning, EncodeError, r"\(5,\) cannot be a key of type tuple\[str\]"),
    ],
)
def test_a_range_that_cannot_be_is_refused_at_the_call(handle: Any, error: type[Exception], message: str) -> None:
    caught: list[BaseException] = []

    async def catching(ctx: Context, event: Any, kept: Any) -> None:
        try:
            await handle(ctx, event, kept)
        except Exception as found:
            caught.append(found)

    catching.__annotations__["kept"] = {
        unordered: MapState[Place, int],
        wrong_bound: MapState[int, int],
        wrong_beginning: MapState[tuple[str, int], int],
    }[handle]
    with Bench(catching) as bench:
        bench.put("k")
    (found,) = caught
    with pytest.raises(error, match=message):
        raise found
