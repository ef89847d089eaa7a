"""What a handler changes in a value that it has read is kept, without being told; what it only reads is not written."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec
import pydantic
import pytest

from tests.support import Bench
from tidegate import SKIP, Context, Default, ListState, MapState, ValueState


class Basket(msgspec.Struct):
    items: list[str] = []
    sizes: dict[str, list[int]] = {}


@dataclass
class Person:
    name: str = ""
    baskets: list[Basket] = field(default_factory=list)


class Model(pydantic.BaseModel):
    names: list[str] = []
    inner: dict[str, list[int]] = {}


async def maybe_wait(event: Any) -> None:
    """The same doings, with and without a suspension in between."""
    if "wait" in event:
        await asyncio.sleep(0)


async def in_struct(ctx: Context, event: Any, kept: Annotated[ValueState[Basket], Default(factory=Basket)]) -> None:
    basket = kept.value
    if "add" in event:
        basket.items.append(event["add"])
        await maybe_wait(event)
        basket.sizes.setdefault("all", []).append(len(basket.items))


async def in_dataclass(ctx: Context, event: Any, kept: Annotated[ValueState[Person], Default(factory=Person)]) -> None:
    person = kept.value
    if "add" in event:
        await maybe_wait(event)
        if not person.baskets:
            person.baskets.append(Basket())
        person.baskets[0].items.append(event["add"])
        person.name = event["add"]


async def in_model(ctx: Context, event: Any, kept: Annotated[ValueState[Model], Default(factory=Model)]) -> None:
    model = kept.value
    if "add" in event:
        model.names.append(event["add"])
        await maybe_wait(event)
        model.inner.setdefault("x", []).append(1)


async def in_list(ctx: Context, event: Any, kept: Annotated[ValueState[list[Any]], Default(factory=list)]) -> None:
    things = kept.value
    await maybe_wait(event)
    if "add" in event:
        things.append([event["add"]])
        things[0].append("again")


async def in_dict(ctx: Context, event: Any, kept: Annotated[ValueState[dict[str, Any]], Default(factory=dict)]) -> None:
    if "add" in event:
        kept.value.setdefault("a", {})[event["add"]] = 1
        await maybe_wait(event)
        kept.value["a"]["last"] = event["add"]
    else:
        assert kept.value is not None


CASES: dict[str, tuple[Any, Any]] = {
    "struct": (in_struct, Basket(["x", "y"], {"all": [1, 2]})),
    "dataclass": (in_dataclass, Person("y", [Basket(["x", "y"])])),
    "pydantic": (in_model, Model(names=["x", "y"], inner={"x": [1, 1]})),
    "list": (in_list, [["x", "again", "again"], ["y"]]),
    "dict": (in_dict, {"a": {"x": 1, "y": 1, "last": "y"}}),
}
handlers = pytest.mark.parametrize(("handler", "expected"), CASES.values(), ids=CASES.keys())
ways = pytest.mark.parametrize("way", [{}, {"wait": True}], ids=["direct", "suspended"])


@ways
@handlers
def test_a_change_in_place_is_kept_and_survives(handler: Any, expected: Any, way: dict[str, Any]) -> None:
    with Bench(handler) as bench:
        bench.put("k", {"add": "x", **way})
        bench.restart()
        bench.put("k", {"add": "y", **way})
        assert bench.value("kept", "k") == expected
        bench.crash()
        assert bench.value("kept", "k") == expected


@ways
@handlers
def test_a_value_that_was_only_read_is_not_written(handler: Any, expected: Any, way: dict[str, Any]) -> None:
    with Bench(handler) as bench:
        bench.put("new", way)
        assert bench.value("kept", "new") is None
        assert bench.changes() == []
        bench.put("k", {"add": "x"})
        bench.changes()
        bench.put("k", way)
        assert bench.changes() == []


async def fail_after(ctx: Context, event: Any, kept: Annotated[ValueState[list[Any]], Default(factory=list)]) -> None:
    kept.value.append(event["add"])
    await maybe_wait(event)
    kept.value.append(event["add"])
    ctx.emit(list(kept.value))
    if "fail" in event:
        raise ValueError("on purpose")


@ways
def test_a_failed_handlers_in_place_changes_are_rolled_back(way: dict[str, Any]) -> None:
    with Bench(fail_after, service={"errors": SKIP}) as bench:
        bench.put("k", {"add": 1, "fail": True, **way})
        assert bench.value("kept", "k") is None
        bench.put("k", {"add": 2, **way})
        bench.put("k", {"add": 3, "fail": True, **way})
        bench.put("k", {"add": 4, **way})
        assert bench.outputs(bench.out) == [[2, 2], [2, 2, 4, 4]]
        assert bench.value("kept", "k") == [2, 2, 4, 4]


async def in_map(ctx: Context, event: Any, baskets: MapState[str, Basket]) -> None:
    if event == "fill":
        for name in ("a", "b", "c"):
            baskets[name] = Basket()
    elif event == "wait":
        for name, basket in baskets.items():
            basket.items.append(name)
            await asyncio.sleep(0)
    else:
        for name, basket in baskets.items():
            basket.items.append(name)


@pytest.mark.parametrize("event", ["direct", "wait"])
def test_entries_that_change_while_a_map_is_iterated_are_kept(event: str) -> None:
    with Bench(in_map) as bench:
        bench.put("k", "fill")
        bench.restart()
        bench.put("k", event)
        bench.put("k", event)
        bench.restart()
        assert bench.value("baskets", "k") == {name: Basket([name, name]) for name in "abc"}


async def one_entry(ctx: Context, event: str, baskets: MapState[str, Basket]) -> None:
    if event not in baskets:
        baskets[event] = Basket()
    baskets[event].items.append("x")
    assert len(list(baskets)) >= 1


def test_only_the_entry_that_changed_is_written() -> None:
    with Bench(one_entry) as bench:
        for event in ("a", "b", "c"):
            bench.put("k", event)
        bench.changes()
        bench.put("k", "b")
        assert [change.key[-1:] for change in bench.changes()] == [b"b"]


async def default_entry(
    ctx: Context, event: Any, lists: Annotated[MapState[str, list[int]], Default(factory=list)]
) -> None:
    if event == "look":
        ctx.emit([lists["a"], "a" in lists, len(lists), list(lists)])
    else:
        lists[event].append(1)
        ctx.emit([lists[event], event in lists, len(lists), list(lists)])


def test_a_default_entry_exists_only_once_it_is_changed() -> None:
    with Bench(default_entry) as bench:
        bench.put("k", "look")
        assert bench.changes() == []
        bench.put("k", "a")
        assert bench.outputs(bench.out) == [[[], False, 0, []], [[1], True, 1, ["a"]]]
        assert bench.value("lists", "k") == {"a": [1]}


async def default_value(
    ctx: Context, event: Any, kept: Annotated[ValueState[list[int]], Default(factory=list)]
) -> None:
    if event == "clear":
        kept.clear()
    elif event == "set":
        kept.value = []
    elif event == "add":
        kept.value.append(1)
    ctx.emit([kept.value, kept.exists])


def test_reading_a_default_does_not_store_it() -> None:
    with Bench(default_value) as bench:
        for event in ("look", "set", "clear", "look", "add", "look"):
            bench.put("k", event)
        expected = [[[], False], [[], True], [[], False], [[], False], [[1], True], [[1], True]]
        assert bench.outputs(bench.out) == expected


def test_reading_a_default_after_a_clear_does_not_store_it() -> None:
    with Bench(default_value) as bench:
        bench.put("k", "add")
        for event in ("clear", "look", "look"):
            bench.put("k", event, settle=False)
        bench.settle()
        assert bench.outputs(bench.out)[1:] == [[[], False]] * 3
        assert bench.value("kept", "k") is None


def _numbered() -> list[int]:
    _numbered.calls += 1  # type: ignore[attr-defined]
    return [_numbered.calls]  # type: ignore[attr-defined]


_numbered.calls = 0  # type: ignore[attr-defined]


async def numbered(
    ctx: Context, event: Any, kept: Annotated[ValueState[list[int]], Default(factory=_numbered)]
) -> None:
    if event:
        kept.value.append(0)
    assert kept.value


def test_a_factory_that_makes_something_else_each_time_does_not_write_by_being_read() -> None:
    with Bench(numbered) as bench:
        bench.put("k", 0)
        bench.put("k", 0)
        assert bench.changes() == []
        bench.put("k", 1)
        assert len(bench.changes()) == 1


async def in_items(ctx: Context, event: Any, baskets: ListState[Basket]) -> None:
    if event == "fill":
        baskets.extend([Basket(), Basket()])
    else:
        for number, basket in enumerate(baskets):
            basket.items.append(str(number))
            if event == "wait":
                await asyncio.sleep(0)


@pytest.mark.parametrize("event", ["direct", "wait"])
def test_items_of_a_list_that_change_are_kept(event: str) -> None:
    with Bench(in_items) as bench:
        bench.put("k", "fill")
        bench.put("k", event)
        bench.restart()
        bench.put("k", event)
        assert bench.value("baskets", "k") == [Basket(["0", "0"]), Basket(["1", "1"])]


async def assign_twice(ctx: Context, event: Any, kept: ValueState[list[int] | None]) -> None:
    assert kept.value != []
    kept.value = [1]
    await asyncio.sleep(0)
    kept.value = [2]


def test_the_last_assignment_is_kept_across_a_suspension() -> None:
    with Bench(assign_twice) as bench:
        bench.put("k")
        assert bench.value("kept", "k") == [2]
        bench.put("k")
        assert bench.value("kept", "k") == [2]


async def two_states(
    ctx: Context,
    event: Any,
    first: Annotated[ValueState[list[Any]], Default(factory=list)],
    second: Annotated[ValueState[list[Any]], Default(factory=list)],
) -> None:
    first.value.append(event)
    await maybe_wait(event)
    second.value.append(object() if "bad" in event else event)


@ways
def test_a_value_that_cannot_be_stored_rolls_back_the_whole_record(way: dict[str, Any]) -> None:
    with Bench(two_states, service={"errors": SKIP}) as bench:
        bench.put("k", {"n": 1, **way})
        bench.put("k", {"bad": True, **way})
        bench.put("k", {"n": 2, **way})
        expected = [{"n": 1, **way}, {"n": 2, **way}]
        assert bench.value("first", "k") == expected
        assert bench.value("second", "k") == expected
