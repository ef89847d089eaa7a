"""MapState: a map per key, of any size, in the order of its keys' bytes."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import msgspec
import pytest

from tests.support import Bench
from tidegate import SKIP, Context, Default, MapState
from tidegate.errors import EncodeError


class Place(msgspec.Struct, frozen=True):
    street: str
    number: int


async def operate(ctx: Context, event: Any, kept: MapState[str, int]) -> None:
    """Each event is a list of operations; what the last one returns is emitted."""
    result: Any = None
    for operation, *arguments in event:
        match operation:
            case "set":
                kept[arguments[0]] = arguments[1]
            case "wait":
                await asyncio.sleep(0)
            case "list":
                result = list(kept.items())
            case "fail":
                raise ValueError("on purpose")
            case "in":
                result = arguments[0] in kept
            case "len":
                result = [len(kept), bool(kept)]
            case "del":
                del kept[arguments[0]]
            case "get":
                result = kept[arguments[0]]
            case _:
                result = getattr(kept, operation)(*arguments)
    ctx.emit(result)


def test_entries_are_set_read_and_removed_one_by_one() -> None:
    with Bench(operate) as bench:
        bench.put("k", [["set", "b", 2], ["set", "a", 1]])
        bench.put("k", [["get", "a"]])
        bench.put("k", [["get", "b"]])
        bench.put("k", [["del", "b"], ["in", "b"]])
        bench.put("k", [["len"]])
        assert bench.outputs(bench.out) == [None, 1, 2, False, [1, True]]
        bench.restart()
        assert bench.value("kept", "k") == {"a": 1}


def test_a_map_state_behaves_like_a_dict() -> None:
    with Bench(operate) as bench:
        bench.put("k", [["update", {"a": 1, "b": 2}], ["setdefault", "a", 5]])
        bench.put("k", [["setdefault", "c", 3]])
        bench.put("k", [["pop", "b"]])
        bench.put("k", [["pop", "b", 7]])
        bench.put("k", [["get", "a"]])
        bench.put("k", [["popitem"], ["list"]])
        bench.put("k", [["clear"], ["len"]])
        assert bench.outputs(bench.out) == [1, 3, 2, 7, 1, [["c", 3]], [0, False]]
        assert bench.value("kept", "k") == {}


def test_a_missing_entry_is_a_key_error() -> None:
    with Bench(operate, service={"errors": SKIP}) as bench:
        bench.put("k", [["set", "a", 1], ["get", "b"]])
        bench.put("k", [["set", "a", 1], ["del", "b"]])
        assert bench.outputs(bench.out) == []
        assert bench.value("kept", "k") == {}


def test_iteration_merges_stored_and_new_entries_in_order() -> None:
    with Bench(operate) as bench:
        bench.put("k", [["set", "b", 2], ["set", "d", 4], ["set", "f", 6]])
        bench.restart()
        bench.put("k", [["set", "a", 1], ["set", "d", 40], ["del", "f"], ["set", "e", 5], ["list"]])
        assert bench.outputs(bench.out)[-1] == [["a", 1], ["b", 2], ["d", 40], ["e", 5]]
        bench.put("k", [["set", "c", 3], ["wait"], ["del", "a"], ["set", "z", 9], ["list"]])
        assert bench.outputs(bench.out)[-1] == [["b", 2], ["c", 3], ["d", 40], ["e", 5], ["z", 9]]


def test_a_handler_sees_its_own_changes_while_others_are_suspended() -> None:
    released = asyncio.Event()

    async def handle(ctx: Context, event: Any, kept: MapState[str, int]) -> None:
        kept[event] = 1
        if ctx.key == "a":
            await released.wait()
            kept["y"] = 2
        ctx.emit(list(kept.items()))

    with Bench(handle) as bench:
        bench.put_quietly("a", "x")
        bench.put_quietly("b", "z")
        assert bench.outputs(bench.out) == [[["z", 1]]]
        bench.call(released.set)
        bench.settle()
        assert bench.outputs(bench.out) == [[["x", 1], ["y", 2]]]


def test_neighbouring_keys_do_not_see_each_others_entries() -> None:
    keys = ["a", "a\x00", "a\x00\x00", "ab", "", "\x00", "ÿ"]
    with Bench(operate) as bench:
        for number, key in enumerate(keys):
            bench.put(key, [["set", "", number], ["set", "\x00", number]])
        bench.restart()
        for number, key in enumerate(keys):
            bench.put(key, [["list"]])
            assert bench.outputs(bench.out)[-1] == [["", number], ["\x00", number]]


@pytest.mark.parametrize(
    ("event", "message"),
    [
        ([["set", "a", "text"]], "map 'kept' holds int | None, not str"),
        ([["set", "a", None]], "map 'kept' cannot hold None: remove the entry instead, with del"),
        ([["set", 1, 1]], "map 'kept' has keys of str, not int"),
        ([["in", 1]], "map 'kept' has keys of str, not int"),
    ],
)
def test_a_key_or_value_of_another_type_is_refused(event: Any, message: str) -> None:
    refused: list[EncodeError] = []

    async def handle(ctx: Context, event: Any, kept: MapState[str, int | None]) -> None:
        try:
            await operate(ctx, event, kept)  # type: ignore[arg-type]
        except EncodeError as error:
            refused.append(error)

    with Bench(handle) as bench:
        bench.put("k", event)
        assert str(refused[0]) == message
        assert bench.changes() == []


async def by_number(ctx: Context, event: Any, kept: MapState[int, str]) -> None:
    for number in event:
        kept[number] = str(number)
    ctx.emit(list(kept))


def test_whole_numbers_are_keys_in_their_order() -> None:
    with Bench(by_number) as bench:
        bench.put("k", [10, 9, -1])
        bench.restart()
        bench.put("k", [])
        assert bench.outputs(bench.out) == [[-1, 9, 10]] * 2
        assert bench.value("kept", "k") == {10: "10", 9: "9", -1: "-1"}


async def by_place(ctx: Context, event: Any, kept: MapState[Place, tuple[int, int]]) -> None:
    place = Place("main", 1)
    kept[place] = (1, 2)
    assert list(kept.items()) == [(place, (1, 2))]


def test_structured_keys_round_trip() -> None:
    with Bench(by_place) as bench:
        bench.put("k")
        bench.restart()
        bench.put("k")
        assert bench.value("kept", "k") == {Place("main", 1): (1, 2)}


async def with_default(ctx: Context, event: str, kept: Annotated[MapState[str, int], Default(0)]) -> None:
    before = [kept[event], event in kept, kept.get(event)]
    kept[event] += 1
    ctx.emit([*before, kept[event]])


def test_a_missing_entry_reads_as_the_default() -> None:
    with Bench(with_default) as bench:
        bench.put("k", "a")
        bench.put("k", "a")
        assert bench.outputs(bench.out) == [[0, False, None, 1], [1, True, 1, 2]]


async def like_a_defaultdict(
    ctx: Context, event: str, kept: Annotated[MapState[str, list[int]], Default(factory=list)]
) -> None:
    popped = kept.pop("a", None)
    known = kept.setdefault("a", [1])
    known.append(2)
    ctx.emit([popped, kept["a"], kept.pop("b", 7), "b" in kept])


def test_a_default_is_for_reading_not_for_taking_away() -> None:
    with Bench(like_a_defaultdict) as bench:
        bench.put("k", "a")
        bench.put("k", "a")
        assert bench.outputs(bench.out) == [[None, [1, 2], 7, False], [[1, 2], [1, 2], 7, False]]
        assert bench.value("kept", "k") == {"a": [1, 2]}


async def change_while_iterating(ctx: Context, event: Any, kept: MapState[str, int]) -> None:
    if event == "fill":
        kept.update({"a": 1, "b": 2, "c": 3, "d": 4})
        return
    for name, number in list(kept.items()) if event == "list" else kept.items():
        if number % 2:
            del kept[name]
        else:
            kept[name] = number * 10
        if event == "wait":
            await asyncio.sleep(0)


@pytest.mark.parametrize("event", ["list", "live", "wait"])
def test_entries_may_be_changed_and_removed_while_it_is_iterated(event: str) -> None:
    with Bench(change_while_iterating) as bench:
        bench.put("k", "fill")
        bench.put("k", event)
        assert bench.value("kept", "k") == {"b": 20, "d": 40}


async def one_of_many(ctx: Context, event: Any, kept: MapState[str, int]) -> None:
    if isinstance(event, int):
        kept.update({f"{number:06}": number for number in range(event)})
    elif event == "count":
        ctx.emit([len(kept), sum(kept.values())])
    else:
        kept[event] += 1


def test_touching_one_entry_of_a_big_map_writes_one_entry() -> None:
    with Bench(one_of_many, cache_entries=1000) as bench:
        bench.put("k", 20_000)
        bench.crash()
        bench.changes()
        bench.put("k", "012345")
        assert len(bench.changes()) == 1
        bench.put("k", "count")
        bench.put("k", "count")
        assert bench.outputs(bench.out) == [[20_000, sum(range(20_000)) + 1]] * 2
