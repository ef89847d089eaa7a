"""ValueState: one value per key, typed, with a default, absent when it is None."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any
from uuid import UUID

import faust
import msgspec
import pydantic
import pytest

from tests.support import Bench
from tidegate import TTL, App, Context, Default, ListState, MapState, ProcessFunction, Reduce, ReducingState, ValueState
from tidegate.errors import DefinitionError, EncodeError, UsageError


class Frozen(msgspec.Struct, frozen=True):
    name: str
    sizes: tuple[int, ...] = ()


class Struct(msgspec.Struct):
    name: str
    tags: list[str] = []


@dataclass(frozen=True)
class FrozenData:
    name: str
    at: datetime | None = None


@dataclass
class Data:
    name: str
    inner: Struct


class Model(pydantic.BaseModel):
    name: str
    prices: list[Decimal] = []


class Record(faust.Record):
    name: str
    count: int = 0


VALUES: dict[str, tuple[Any, Any]] = {
    "bool": (bool, True),
    "int": (int, -7),
    "float": (float, 0.5),
    "str": (str, "ü\x00\n"),
    "bytes": (bytes, b"\x00\xff"),
    "decimal": (Decimal, Decimal("1.10")),
    "datetime": (datetime, datetime(2026, 1, 2, tzinfo=UTC)),
    "uuid": (UUID, UUID(int=5)),
    "list": (list[int], [1, 2]),
    "dict": (dict[str, list[int]], {"a": [1]}),
    "set": (set[int], {1, 2}),
    "tuple": (tuple[int, str], (1, "a")),
    "union": (int | str, "one"),
    "any": (Any, {"a": [None, 1.5, "x"]}),
    "frozen struct": (Frozen, Frozen("a", (1, 2))),
    "struct": (Struct, Struct("a", ["x"])),
    "frozen dataclass": (FrozenData, FrozenData("a", datetime(2026, 1, 2, tzinfo=UTC))),
    "dataclass": (Data, Data("a", Struct("b"))),
    "pydantic": (Model, Model(name="a", prices=[Decimal("1.1")])),
    "faust": (Record, Record(name="a", count=3)),
}


def handler_for(stored: Any, act: Callable[[Context, Any, Any], None]) -> Callable[..., Any]:
    """A handler whose state `kept` is of the given type."""

    async def handle(ctx: Context, event: Any, kept: ValueState[Any]) -> None:
        act(ctx, event, kept)

    handle.__annotations__["kept"] = ValueState[stored | None]
    return handle


@pytest.mark.parametrize(("stored", "value"), VALUES.values(), ids=VALUES.keys())
def test_a_value_of_every_supported_type_survives_a_restart(stored: Any, value: Any) -> None:
    seen: list[Any] = []

    def act(ctx: Context, event: Any, kept: Any) -> None:
        seen.append(kept.value)
        if event == "set":
            kept.value = value

    with Bench(handler_for(stored, act)) as bench:
        bench.put("k", "set")
        bench.put("k", "look")
        bench.restart()
        bench.put("k", "look")
        assert seen == [None, value, value]
        assert type(seen[2]) is type(value)
        assert bench.value("kept", "k") == value


@pytest.mark.parametrize(
    ("stored", "wrong"), [(int, "1"), (int, True), (str, 1), (list[int], (1,)), (Frozen, Struct("a"))]
)
def test_a_value_of_another_type_is_refused_where_it_is_assigned(stored: Any, wrong: Any) -> None:
    refused: list[str] = []

    def act(ctx: Context, event: Any, kept: Any) -> None:
        with pytest.raises(EncodeError) as error:
            kept.value = wrong
        refused.append(str(error.value))

    with Bench(handler_for(stored, act)) as bench:
        bench.put("k")
        assert "'kept'" in refused[0]
        assert bench.value("kept", "k") is None
        assert bench.changes() == []


async def look(ctx: Context, event: Any, kept: ValueState[int | None]) -> None:
    if event == "none":
        kept.value = None
    elif event == "clear":
        kept.clear()
    elif event != "look":
        kept.value = event
    ctx.emit([kept.value, kept.exists])


@pytest.mark.parametrize("forget", ["none", "clear"])
def test_none_is_the_same_as_nothing(forget: str) -> None:
    with Bench(look) as bench:
        for event in ("look", 1, forget, "look", 0):
            bench.put("k", event)
        assert bench.outputs(bench.out) == [[None, False], [1, True], [None, False], [None, False], [0, True]]


def test_a_cleared_value_is_removed_from_store_and_changelog() -> None:
    with Bench(look) as bench:
        bench.put("k", 1)
        bench.changes()
        bench.put("k", "clear")
        assert [change.value for change in bench.changes()] == [None]
        bench.restart()
        assert bench.value("kept", "k") is None


def test_each_key_has_a_value_of_its_own() -> None:
    with Bench(look) as bench:
        for key in ("a", "b", "", "a\x00b", "a\x00"):
            bench.put(key, len(key))
        bench.restart()
        assert [bench.value("kept", key) for key in ("a", "b", "", "a\x00b", "a\x00")] == [1, 1, 0, 3, 2]


async def count(ctx: Context, event: Any, total: Annotated[ValueState[int], Default(10)]) -> None:
    if event:
        total.value += event
    ctx.emit([total.value, total.exists])


def test_a_default_is_read_but_does_not_exist() -> None:
    with Bench(count) as bench:
        bench.put("k", 0)
        assert bench.outputs(bench.out) == [[10, False]]
        assert bench.value("total", "k") is None
        bench.put("k", 1)
        assert bench.outputs(bench.out) == [[11, True]]


def test_reading_does_not_write() -> None:
    with Bench(count) as bench:
        for _ in range(3):
            bench.put("k", 0)
        assert bench.changes() == []


def test_many_changes_between_commits_are_one_change() -> None:
    with Bench(count) as bench:
        for _ in range(5):
            bench.put("k", 1, settle=False)
        bench.settle()
        assert [change.value for change in bench.changes()] == [b"15"]


async def without_default(ctx: Context, event: Any, kept: ValueState[int]) -> None: ...


async def without_option(ctx: Context, event: Any, kept: Annotated[ValueState[list[str]], TTL(days=1)]) -> None: ...


async def with_none(ctx: Context, event: Any, kept: Annotated[ValueState[str], Default(None)]) -> None: ...


async def raw_bytes(ctx: Context, event: Any, kept: ValueState[bytes]) -> None: ...


@pytest.mark.parametrize(
    ("handler", "advice"),
    [
        (without_default, r"Write ValueState\[int \| None\], or Annotated\[ValueState\[int\], Default\(0\)\]"),
        (without_option, r"ValueState\[list\[str\] \| None\], or .*Default\(factory=list\)"),
        (with_none, r"ValueState\[str \| None\], or .*Default\(\"\"\)"),
        (raw_bytes, r"Write Annotated\[ValueState\[bytes\], Default\(b\"\"\)\]"),
    ],
)
def test_an_optional_value_is_declared_in_its_type(handler: Any, advice: str) -> None:
    with pytest.raises(DefinitionError, match=advice):
        Bench(handler)


def test_a_class_a_timer_and_a_message_need_a_default_too() -> None:
    app = App("app")
    events = app.topic("events")

    class Counted(ProcessFunction[Any, None]):
        kept: ValueState[int]

        async def process(self, ctx: Context, event: Any) -> None: ...

    async def fired(ctx: Context, kept: ValueState[int]) -> None: ...

    async def told(ctx: Context, message: int, kept: ValueState[int]) -> None: ...

    @app.process(events)
    async def service(ctx: Context, event: Any) -> None: ...

    with pytest.raises(DefinitionError, match="'kept'"):
        app.process(events)(Counted)
    with pytest.raises(DefinitionError, match="'kept'"):
        service.on_timer()(fired)
    with pytest.raises(DefinitionError, match="'kept'"):
        service.on(int)(told)


def test_a_later_declaration_may_leave_the_default_out() -> None:
    async def fired(ctx: Context, total: ValueState[int]) -> None:
        ctx.emit(total.value)

    async def set_timer(ctx: Context, event: Any, total: Annotated[ValueState[int], Default(7)]) -> None:
        ctx.timers.after(1, name="t")

    with Bench(set_timer, timers={"t": fired}) as bench:
        bench.put("k")
        bench.finish()
        assert bench.outputs(bench.out) == [7]


def test_a_state_has_no_truth_of_its_own() -> None:
    raised: list[UsageError] = []

    async def look(
        ctx: Context,
        event: Any,
        kept: ValueState[int | None],
        highest: Annotated[ReducingState[int], Reduce(max)],
        items: ListState[int],
        names: MapState[str, int],
    ) -> None:
        for state in (kept, highest):
            try:
                assert state  # type: ignore[truthy-bool]
            except UsageError as error:
                raised.append(error)
        ctx.emit([bool(items), bool(names)])
        items.append(1)
        names["x"] = 1
        ctx.emit([bool(items), bool(names)])

    with Bench(look) as bench:
        bench.put("k")
        assert bench.outputs(bench.out) == [[False, False], [True, True]]
    assert str(raised[0]).startswith("a ValueState is neither true nor false")
    assert "if state.value is not None:" in str(raised[0])
    assert str(raised[1]).startswith("a ReducingState")


def test_neither_has_one_that_is_all_that_its_handler_has() -> None:
    raised: list[UsageError] = []

    async def look(ctx: Context, event: Any, kept: ValueState[int | None]) -> None:
        kept.value = event
        with pytest.raises(UsageError) as error:
            assert kept  # type: ignore[truthy-bool]
        raised.append(error.value)

    with Bench(look) as bench:
        bench.put_all([("k", 1), ("k", 2)])
        assert len(raised) == 2
        assert str(raised[1]).startswith("a ValueState is")


def test_a_shared_default_that_can_change_in_place_is_refused() -> None:
    async def handle(ctx: Context, event: Any, tags: Annotated[ValueState[list[str]], Default([])]) -> None: ...

    with pytest.raises(Exception, match=r"Default\(factory=list\)"):
        Bench(handle)


def test_more_keys_than_the_cache_holds_keep_their_values() -> None:
    keys = [str(key) for key in range(3000)]
    with Bench(count, cache_entries=1000) as bench:
        for turn in range(3):
            bench.put_all((key, turn + 1) for key in keys)
        assert {bench.value("total", key) for key in keys} == {16}
        bench.crash()
        assert {bench.value("total", key) for key in keys} == {16}
