"""OperatorState: a list that belongs to a task, whatever the key."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import msgspec
import pytest

from tests.support import Bench
from tidegate import DEAD_LETTER, SKIP, TTL, Context, OperatorState, Redistribute
from tidegate.errors import DefinitionError


class Item(msgspec.Struct):
    names: list[str] = []


gates: dict[str, asyncio.Event] = {}


async def operate(ctx: Context, event: Any, seen: OperatorState[str]) -> None:
    if "append" in event:
        seen.append(event["append"])
    if "replace" in event:
        seen.replace(event["replace"])
    if "wait" in event:
        await gates.setdefault(event["wait"], asyncio.Event()).wait()
    if "then" in event:
        seen.append(event["then"])
    if "fail" in event:
        raise ValueError("on purpose")
    ctx.emit([len(seen), list(seen)])


@pytest.fixture(autouse=True)
def _closed_gates() -> None:
    gates.clear()


def test_all_keys_of_a_task_share_it() -> None:
    with Bench(operate) as bench:
        bench.put("a", {"append": "x"})
        bench.put("b", {"append": "y"})
        assert bench.outputs(bench.out) == [[1, ["x"]], [2, ["x", "y"]]]
        bench.crash()
        assert bench.value("seen") == ["x", "y"]


def test_each_task_has_its_own() -> None:
    with Bench(operate, partitions=4) as bench:
        for key in "abcdefgh":
            bench.put(key, {"append": key})
        bench.restart()
        stores = [task.store for task in bench.engine.tasks.values()]
        assert len(stores) == 4
        assert sorted(bench.value("seen")) == list("abcdefgh")
        lengths = [length for length, _ in bench.outputs(bench.out)]
        assert lengths.count(1) > 1


def test_replacing_and_clearing() -> None:
    async def handle(ctx: Context, event: Any, seen: OperatorState[str]) -> None:
        if event is None:
            seen.clear()
        else:
            seen.replace(event)
        ctx.emit(list(seen))

    with Bench(handle) as bench:
        bench.put("a", ["x", "y"])
        bench.put("b", None)
        bench.put("c", ["z"])
        assert bench.outputs(bench.out) == [["x", "y"], [], ["z"]]


def test_overlapping_handlers_do_not_overwrite_each_other() -> None:
    with Bench(operate) as bench:
        bench.put_quietly("a", {"append": "a1", "wait": "a", "then": "a2"})
        bench.put_quietly("b", {"append": "b1", "wait": "b", "then": "b2"})
        bench.put_quietly("c", {"append": "c"})
        assert bench.value("seen") == ["c"]
        bench.call(gates["b"].set)
        bench.settle(wait=False)
        assert bench.value("seen") == ["c", "b1", "b2"]
        bench.call(gates["a"].set)
        bench.settle()
        assert bench.value("seen") == ["c", "b1", "b2", "a1", "a2"]


def test_a_handler_sees_its_own_changes_and_no_unfinished_ones() -> None:
    with Bench(operate) as bench:
        bench.put_quietly("a", {"append": "a1", "wait": "a", "then": "a2"})
        bench.put_quietly("b", {"append": "b"})
        bench.call(gates["a"].set)
        bench.settle()
        assert bench.outputs(bench.out) == [[1, ["b"]], [2, ["a1", "a2"]]]


def test_a_failed_handler_adds_nothing() -> None:
    with Bench(operate, service={"errors": SKIP}) as bench:
        bench.put("a", {"append": "a"})
        bench.put("b", {"append": "b", "fail": True})
        bench.put_quietly("c", {"append": "c", "wait": "c", "fail": True})
        bench.put_quietly("d", {"append": "d"})
        bench.call(gates["c"].set)
        bench.settle()
        assert bench.value("seen") == ["a", "d"]


async def change_items(ctx: Context, event: Any, items: OperatorState[Item]) -> None:
    if event == "add":
        items.append(Item())
        return
    known = list(items)
    if "wait" in event:
        await asyncio.sleep(0)
    if "change" in event:
        known[0].names.append("x")
    if "put back" in event:
        items.replace(known)
    if "fail" in event:
        raise ValueError("on purpose")
    ctx.emit(event)


@pytest.mark.parametrize("event", ["change", "wait, change"])
def test_items_that_are_changed_and_not_put_back_are_refused_with_the_record(event: str) -> None:
    with Bench(change_items, service={"errors": DEAD_LETTER}) as bench:
        bench.put_all([("a", "add"), ("b", event), ("c", "look")])
        (letter,) = bench.dead_letters(bench.service)
        assert "Put them back: items.replace(items)" in letter.error
        assert bench.value("items") == [Item()]
        assert bench.outputs(bench.out) == ["look"]


@pytest.mark.parametrize("event", ["change, put back", "wait, change, put back"])
def test_items_that_are_changed_and_put_back_are_kept(event: str) -> None:
    with Bench(change_items) as bench:
        bench.put_all([("a", "add"), ("b", event)])
        bench.crash()
        assert bench.value("items") == [Item(["x"])]


@pytest.mark.parametrize("event", ["change, fail", "wait, change, fail"])
def test_a_failure_is_not_blamed_on_the_next_handler(event: str) -> None:
    with Bench(change_items, service={"errors": DEAD_LETTER}) as bench:
        bench.put_all([("a", "add"), ("b", event), ("c", "look"), ("d", "wait")])
        assert [letter.error for letter in bench.dead_letters(bench.service)] == ["on purpose"]
        assert sorted(bench.outputs(bench.out)) == ["look", "wait"]


def test_it_has_no_time_to_live() -> None:
    async def handle(ctx: Context, event: Any, seen: Annotated[OperatorState[str], TTL(days=1)]) -> None: ...

    with pytest.raises(DefinitionError, match="TTL"):
        Bench(handle)


def test_a_misspelt_way_of_redistributing_it_is_refused() -> None:
    with pytest.raises(DefinitionError, match="'split' or 'union', not 'all'"):
        Redistribute("all")  # type: ignore[arg-type]
