"""ReducingState and AggregatingState: one value per key, made of all that was added."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import msgspec
import pytest

from tests.support import Bench
from tidegate import (
    SKIP,
    Aggregate,
    AggregateFunction,
    AggregatingState,
    Context,
    Default,
    Reduce,
    ReducingState,
    ValueState,
)
from tidegate.errors import DefinitionError


class Sum(msgspec.Struct):
    """An accumulator that changes in place."""

    total: float = 0
    count: int = 0


class Mean(AggregateFunction[float, Sum, float]):
    def create(self) -> Sum:
        return Sum()

    def add(self, accumulator: Sum, item: float) -> Sum:
        accumulator.total += item
        accumulator.count += 1
        return accumulator

    def result(self, accumulator: Sum) -> float:
        return accumulator.total / accumulator.count


class Longest(AggregateFunction[str, tuple[str, int], str]):
    """One that does not."""

    def create(self) -> tuple[str, int]:
        return "", 0

    def add(self, accumulator: tuple[str, int], item: str) -> tuple[str, int]:
        return (item, len(item)) if len(item) > accumulator[1] else accumulator

    def result(self, accumulator: tuple[str, int]) -> str:
        return accumulator[0]


async def highest(ctx: Context, event: Any, top: Annotated[ReducingState[int], Reduce(max)]) -> None:
    if event == "clear":
        top.clear()
    elif event is not None:
        top.add(event)
    ctx.emit(top.value)


def test_a_reducing_state_combines_added_items() -> None:
    with Bench(highest) as bench:
        for event in (None, 3, 1, 5, "clear", None, -2):
            bench.put("k", event)
        assert bench.outputs(bench.out) == [None, 3, 3, 5, None, None, -2]
        bench.restart()
        assert bench.value("top", "k") == -2


def _merge(known: dict[str, int], added: dict[str, int]) -> dict[str, int]:
    known.update(added)
    return known


async def merged(ctx: Context, event: Any, all_: Annotated[ReducingState[dict[str, int]], Reduce(_merge)]) -> None:
    all_.add(event["add"])
    if "wait" in event:
        await asyncio.sleep(0)
        all_.add({"waited": 1})
    if "fail" in event:
        raise ValueError("on purpose")


def test_a_function_may_combine_in_place() -> None:
    with Bench(merged, service={"errors": SKIP}) as bench:
        bench.put("k", {"add": {"a": 1}})
        bench.put("k", {"add": {"b": 2}, "fail": True})
        bench.put("k", {"add": {"c": 3}, "wait": True, "fail": True})
        bench.put("k", {"add": {"d": 4}, "wait": True})
        assert bench.value("all_", "k") == {"a": 1, "d": 4, "waited": 1}
        bench.crash()
        assert bench.value("all_", "k") == {"a": 1, "d": 4, "waited": 1}


async def aggregate(
    ctx: Context,
    event: Any,
    mean: Annotated[AggregatingState[float, float], Aggregate(Mean())],
    longest: Annotated[AggregatingState[str, str], Aggregate(Longest())],
) -> None:
    for item in event:
        mean.add(item) if isinstance(item, float) else longest.add(item)
    ctx.emit([mean.value, longest.value])


def test_an_aggregating_state_shows_its_result_and_stores_its_accumulator() -> None:
    with Bench(aggregate) as bench:
        bench.put("k", [])
        bench.put("k", [1.0, 2.0, "aa", "b"])
        bench.restart()
        bench.put("k", [6.0])
        assert bench.outputs(bench.out) == [[None, None], [1.5, "aa"], [3.0, "aa"]]
        assert bench.value("mean", "k") == 3.0
        assert bench.value("longest", "k") == "aa"


def test_a_state_without_a_reduce_function_is_refused() -> None:
    async def reducing(ctx: Context, event: Any, top: ReducingState[int]) -> None: ...
    async def aggregating(ctx: Context, event: Any, mean: AggregatingState[float, float]) -> None: ...

    with pytest.raises(DefinitionError, match="Reduce"):
        Bench(reducing)
    with pytest.raises(DefinitionError, match="Aggregate"):
        Bench(aggregating)


async def several(
    ctx: Context,
    event: int,
    least: Annotated[ReducingState[int], Reduce(min)],
    most: Annotated[ReducingState[int], Reduce(max)],
    count: Annotated[ValueState[int], Default(0)],
) -> None:
    least.add(event)
    most.add(event)
    count.value += 1


def test_an_aggregate_function_is_an_object_not_a_class() -> None:
    with pytest.raises(DefinitionError, match=r"Aggregate\(Mean\(\)\)"):
        Aggregate(Mean)  # type: ignore[arg-type]


def test_several_states_of_a_service_do_not_mix() -> None:
    with Bench(several) as bench:
        for event in (3, 1, 2):
            bench.put("k", event)
        assert [bench.value(name, "k") for name in ("least", "most", "count")] == [1, 3, 3]
