"""Old state under new code: read, migrated, or refused before anything is served."""

from __future__ import annotations

import dataclasses
import logging
from typing import Annotated, Any, Literal

import msgspec
import pytest
from pydantic import BaseModel

from tidegate import (
    TTL,
    App,
    Context,
    Default,
    ListState,
    MapState,
    OperatorState,
    ProcessFunction,
    Service,
    ValueState,
    Version,
    migration,
)
from tidegate.errors import DefinitionError, DroppedStateError, MigrationError, SchemaError
from tidegate.faults import InjectedFault, arm, disarm, parse
from tidegate.state.schema import decode_schema
from tidegate.testing import AppHarness


class V1(msgspec.Struct):
    n: int
    name: str


class WithDefault(msgspec.Struct):
    n: int
    name: str
    at: int = 7


class WithoutDefault(msgspec.Struct):
    n: int
    name: str
    at: int


class Without(msgspec.Struct):
    n: int


class Retyped(msgspec.Struct):
    n: str
    name: str


class Widened(msgspec.Struct):
    n: float | None
    name: str | None = None


def make(annotation: Any, body: Any = None, *, state: str = "kept", partitions: int = 2) -> tuple[App, Any, Service]:
    """A service with one state of this type; `body` is what it does with it."""
    app = App("app")
    events = app.topic("events", value_type=int, key=lambda number: number % 5, partitions=partitions)

    async def called_kept(ctx: Context, event: int, kept: Any) -> None:
        if body is not None:
            body(kept, event)

    async def called_other(ctx: Context, event: int, other: Any) -> None: ...

    handler = {"kept": called_kept, "other": called_other}[state]
    handler.__annotations__[state] = annotation
    return app, events, app.process(events, name="service")(handler)


def put(kept: ValueState[Any], event: int) -> None:
    kept.value = V1(event, "x")


def filled(harness: AppHarness, events: Any, count: int = 20) -> None:
    harness.send_many(events, range(count))


def test_a_field_with_a_default_just_works() -> None:
    app, events, service = make(ValueState[V1 | None], put)
    with AppHarness(app) as harness:
        filled(harness, events)
        new, _, _ = make(ValueState[WithDefault | None])
        harness.upgrade(new)
        assert harness.state(service, "kept", 3) == WithDefault(18, "x", 7)
        harness.crash()
        assert harness.state(service, "kept", 3) == WithDefault(18, "x", 7)


@pytest.mark.parametrize("annotation", [ValueState[Widened | None], ValueState[Any], ValueState[V1 | int | None]])
def test_a_type_that_takes_more_just_works(annotation: Any) -> None:
    app, events, service = make(ValueState[V1 | None], put)
    with AppHarness(app) as harness:
        filled(harness, events)
        harness.upgrade(make(annotation)[0])
        assert harness.state(service, "kept", 3) is not None


@pytest.mark.parametrize(
    ("annotation", "change"),
    [
        (ValueState[WithoutDefault | None], "field 'at' was added without a default"),
        (ValueState[Without | None], "field 'name' is gone"),
        (ValueState[Retyped | None], "field 'n' was int and is now str"),
        (ValueState[int | None], "was an object with fields and is now int"),
        (MapState[str, V1], "it was a value state and is now a map state"),
    ],
)
def test_an_incompatible_change_is_refused_with_the_states_name(annotation: Any, change: str) -> None:
    app, events, service = make(ValueState[V1 | None], put)
    with AppHarness(app) as harness:
        filled(harness, events)
        before = harness.records("app.service.changelog")
        with pytest.raises(SchemaError, match=f"state 'kept': .*{change}"):
            harness.upgrade(make(annotation)[0])
        assert harness.records("app.service.changelog") == before  # nothing was written
        harness.upgrade(app)
        assert harness.state(service, "kept", 3) == V1(18, "x")


def test_the_refusal_suggests_the_declaration() -> None:
    app, events, _ = make(ValueState[V1 | None], put)
    with AppHarness(app) as harness:
        filled(harness, events)
        with pytest.raises(SchemaError) as caught:
            harness.upgrade(make(ValueState[Without | None])[0])
        assert "Version(2)" in str(caught.value)
        assert "@service.migrate('kept', from_version=1)" in str(caught.value)


def test_a_declared_migration_converts_every_value_once() -> None:
    app, events, service = make(ValueState[V1 | None], put)
    with AppHarness(app) as harness:
        filled(harness, events)
        new, _, migrated = make(Annotated[ValueState[Retyped | None], Version(2)])
        calls: list[int] = []

        @migrated.migrate("kept", from_version=1)
        def as_text(old: V1) -> Retyped:
            calls.append(old.n)
            return Retyped(str(old.n), old.name.upper())

        harness.upgrade(new)
        assert harness.state(service, "kept", 3) == Retyped("18", "X")
        assert sorted(calls) == [15, 16, 17, 18, 19]
        harness.crash()
        assert len(calls) == 5
        with pytest.raises(SchemaError, match="version 2 wrote it, and this code has version 1"):
            harness.upgrade(app)


def test_migrations_follow_each_other() -> None:
    app, events, service = make(ValueState[V1 | None], put)
    with AppHarness(app) as harness:
        filled(harness, events)
        new, _, migrated = make(Annotated[ValueState[int | None], Version(3)])

        @migrated.migrate("kept", from_version=1)
        def first(old: dict[str, Any]) -> Retyped:
            return Retyped(str(old["n"]), "")

        @migrated.migrate("kept", from_version=2)
        def second(old: Retyped) -> int | None:
            return None if old.n == "15" else int(old.n) * 10

        harness.upgrade(new)
        assert [harness.state(service, "kept", key) for key in range(5)] == [None, 160, 170, 180, 190]


def test_a_gap_between_migrations_is_refused() -> None:
    app, events, _ = make(ValueState[V1 | None], put)
    with AppHarness(app) as harness:
        filled(harness, events)
        new, _, migrated = make(Annotated[ValueState[int | None], Version(3)])
        migrated.migrate("kept", from_version=2)(_to_int)
        with pytest.raises(SchemaError, match="no migration from version 1"):
            harness.upgrade(new)


def _to_int(old: Any) -> int:
    return int(old["n"])


def test_maps_lists_and_operator_states_are_migrated_item_by_item() -> None:
    app = App("app")
    events = app.topic("events", value_type=int, key=lambda number: number % 3)

    @app.process(events)
    async def service(
        ctx: Context, event: int, m: MapState[int, int], items: ListState[int], op: OperatorState[int]
    ) -> None:
        m[event] = event
        items.append(event)
        op.append(event)

    newer = App("app")
    again = newer.topic("events", value_type=int, key=lambda number: number % 3)

    @newer.process(again, name="service")
    async def migrated(
        ctx: Context,
        event: int,
        m: Annotated[MapState[int, str], Version(2)],
        items: Annotated[ListState[str], Version(2)],
        op: Annotated[OperatorState[str], Version(2)],
    ) -> None:
        items.append(str(event))

    for name in ("m", "items", "op"):
        migrated.migrate(name, from_version=1)(_to_text)
    with AppHarness(app) as harness:
        filled(harness, events, 9)
        harness.upgrade(newer)
        assert harness.state("service", "m", 1) == {1: "<1>", 4: "<4>", 7: "<7>"}
        assert harness.state("service", "items", 1) == ["<1>", "<4>", "<7>"]
        assert sorted(harness.state("service", "op")) == [f"<{n}>" for n in range(9)]
        harness.send(again, 10)
        assert harness.state("service", "items", 1) == ["<1>", "<4>", "<7>", "10"]


def _to_text(old: int) -> str:
    return f"<{old}>"


def test_the_class_form_migrates_alike() -> None:
    app, events, service = make(ValueState[V1 | None], put)
    newer = App("app")
    again = newer.topic("events", value_type=int, key=lambda number: number % 5, partitions=2)

    @newer.process(again, name="service")
    class Migrated(ProcessFunction[int, None]):
        kept: Annotated[ValueState[int | None], Version(2)]

        async def process(self, ctx: Context, event: int) -> None: ...

        @staticmethod
        @migration("kept", from_version=1)
        def to_int(old: V1) -> int:
            return old.n

    with AppHarness(app) as harness:
        filled(harness, events)
        harness.upgrade(newer)
        assert harness.state(service, "kept", 3) == 18


def test_a_failed_migration_names_the_key_and_succeeds_once_fixed() -> None:
    app, events, service = make(ValueState[V1 | None], put)
    with AppHarness(app) as harness:
        filled(harness, events)

        def version(bad: int) -> App:
            new, _, migrated = make(Annotated[ValueState[int | None], Version(2)])

            @migrated.migrate("kept", from_version=1)
            def convert(old: V1) -> int:
                return 1 // (old.n - bad)

            return new

        with pytest.raises(MigrationError, match="'kept' of service 'service' failed for key b'3': ZeroDivisionError"):
            harness.upgrade(version(18))
        harness.upgrade(version(-100))
        assert harness.state(service, "kept", 3) == 0


def test_a_migration_resumes_after_a_crash_between_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.engine.keyed_state.schema_migration._BATCH", 2)
    app, events, service = make(ValueState[V1 | None], put, partitions=1)
    calls: list[int] = []
    with AppHarness(app) as harness:
        filled(harness, events)
        new, _, migrated = make(Annotated[ValueState[int | None], Version(2)], partitions=1)

        @migrated.migrate("kept", from_version=1)
        def convert(old: V1) -> int:
            calls.append(old.n)
            return old.n

        for _ in range(2):  # each time, one portion gets into the log and none into the store
            arm(parse("state.migrating:raise@1"))
            with pytest.raises(InjectedFault):
                harness.upgrade(new)
            disarm()
        with pytest.raises(SchemaError, match="to version 2 is not finished"):
            harness.upgrade(app)
        harness.upgrade(new)
        assert [harness.state(service, "kept", key) for key in range(5)] == [15, 16, 17, 18, 19]
        assert sorted(calls) == [15, 16, 17, 18, 19]  # none twice


def test_a_ttl_can_be_added_and_removed() -> None:
    app, events, service = make(ValueState[int | None], lambda kept, event: setattr(kept, "value", event))
    with AppHarness(app) as harness:
        filled(harness, events)
        harness.upgrade(make(Annotated[ValueState[int | None], TTL(hours=1)])[0])
        assert harness.state(service, "kept", 3) == 18
        harness.upgrade(app)
        assert harness.state(service, "kept", 3) == 18
        harness.upgrade(make(Annotated[ValueState[int | None], TTL(hours=1)])[0])
        harness.advance(hours=2)
        assert harness.state(service, "kept", 3) is None


def test_a_state_no_longer_declared_is_reported_and_kept() -> None:
    app, events, service = make(ValueState[V1 | None], put)
    with AppHarness(app) as harness:
        filled(harness, events)
        with pytest.raises(DroppedStateError, match=r"no longer declares 'kept' \(was it renamed to 'other'\?"):
            harness.upgrade(make(ValueState[V1 | None], state="other")[0])
        harness.upgrade(app)
        assert harness.state(service, "kept", 3) == V1(18, "x")


def test_it_is_dropped_when_that_is_allowed(caplog: pytest.LogCaptureFixture) -> None:
    app, events, service = make(ValueState[V1 | None], put)
    with AppHarness(app) as harness, caplog.at_level(logging.WARNING):
        filled(harness, events)
        harness._settings = dataclasses.replace(harness._settings, allow_dropped="on")
        harness.upgrade(make(ValueState[V1 | None], state="other")[0])
        harness._settings = dataclasses.replace(harness._settings, allow_dropped="off")
        assert "dropped the values of state 'kept'" in caplog.text
        harness.upgrade(app)
        assert harness.state(service, "kept", 3) is None


def test_a_state_without_values_may_go_and_is_not_called_dropped(caplog: pytest.LogCaptureFixture) -> None:
    app, _, _ = make(ValueState[V1 | None])
    with AppHarness(app) as harness, caplog.at_level(logging.WARNING):
        harness.upgrade(make(ValueState[int | None], state="other")[0])
    assert "dropped" not in caplog.text


def test_the_schema_is_recorded_with_the_state() -> None:
    app, _, _ = make(Annotated[MapState[int, V1], Version(4), Default(V1(0, ""))])
    with AppHarness(app) as harness:
        (raw,) = {record.value for record in harness.records("app.service.changelog") if record.key == b"\x06kept"}
        schema = decode_schema(raw)
        assert (schema.kind, schema.version, schema.key_type) == ("map", 4, {"type": "integer"})


@pytest.mark.parametrize(
    ("version", "state"),
    [(1, "kept"), (0, "kept"), (1, "unknown")],
)
def test_a_migration_that_leads_nowhere_is_refused_where_it_is_written(version: int, state: str) -> None:
    _, _, service = make(ValueState[int | None])
    with pytest.raises(DefinitionError):
        service.migrate(state, from_version=version)(_to_int)


def test_a_migration_is_a_plain_function_of_one_value() -> None:
    _, _, service = make(Annotated[ValueState[int | None], Version(2)])

    async def waits(old: int) -> int:
        return old

    def takes_two(old: int, other: int) -> int:
        return old + other

    for wrong in (waits, takes_two):
        with pytest.raises(DefinitionError):
            service.migrate("kept", from_version=1)(wrong)
    service.migrate("kept", from_version=1)(_to_int)
    with pytest.raises(DefinitionError, match="two migrations"):
        service.migrate("kept", from_version=1)(_to_int)


@dataclasses.dataclass
class Tree:
    name: Literal["a", "b"]
    left: Tree | None = None


@dataclasses.dataclass
class Bush:
    name: Literal["a", "b", "c"]
    left: Bush | None = None
    right: Bush | None = None


@dataclasses.dataclass
class Stump:
    name: Literal["a"]
    left: Stump | None = None


class Model(BaseModel):
    n: int
    more: list[int] = []


class Larger(BaseModel):
    n: int
    more: list[int] = []
    other: str = ""


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (Tree, Bush, None),
        (Tree, Stump, "field 'name' no longer takes 'b'"),
        (Model, Larger, None),
        (Larger, Model, "field 'other' is gone"),
        (list[int], list[float], None),
        (list[int], list[str], r"was int and is now str"),
        (dict[str, int], dict[str, str], r"was int and is now str"),
        (tuple[int, int], tuple[int, int, int], "another number of items"),
        (bytes, str, "was bytes and is now str"),
        (int | None, int, "no longer takes None"),
    ],
)
def test_types_of_all_kinds_are_compared(old: Any, new: Any, problem: str | None) -> None:
    app, _, _ = make(ListState[old])
    with AppHarness(app) as harness:
        if problem is None:
            harness.upgrade(make(ListState[new])[0])
        else:
            with pytest.raises(SchemaError, match=problem):
                harness.upgrade(make(ListState[new])[0])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (Annotated[ValueState[int], Default(0)], ValueState[int | None]),
        (ValueState[int | None], Annotated[ValueState[int], Default(0)]),
        (ValueState[V1 | None], Annotated[ValueState[V1], Default(factory=lambda: V1(0, ""))]),
        (ValueState[int | str | None], Annotated[ValueState[int | str], Default(0)]),
        (MapState[str, int], MapState[str, int | None]),
        (MapState[str, int | None], MapState[str, int]),
    ],
)
def test_optionality_of_a_value_does_not_change_its_schema(old: Any, new: Any) -> None:
    def keep(kept: Any, event: int) -> None:
        if isinstance(kept, MapState):
            kept["n"] = event
        else:
            kept.value = V1(event, "x") if "V1" in str(old) else event

    app, events, service = make(old, keep)
    with AppHarness(app) as harness:
        filled(harness, events)
        before = harness.state(service, "kept", 3)
        harness.upgrade(make(new)[0])
        assert harness.state(service, "kept", 3) == before is not None


def test_a_value_within_another_may_be_none_only_if_the_type_says_so() -> None:
    app, _, _ = make(ValueState[list[int | None] | None])
    with AppHarness(app) as harness, pytest.raises(SchemaError, match="no longer takes None"):
        harness.upgrade(make(ValueState[list[int] | None])[0])


def test_a_class_declares_its_migrations() -> None:
    app = App("app")
    events = app.topic("events", value_type=int)
    with pytest.raises(DefinitionError, match="staticmethod"):

        @app.process(events)
        class Wrong(ProcessFunction[int, None]):
            kept: Annotated[ValueState[int | None], Version(2)]

            async def process(self, ctx: Context, event: int) -> None: ...

            @migration("kept", from_version=1)
            def convert(self) -> int:
                return 0
