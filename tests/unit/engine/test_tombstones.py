"""Tombstones: records without a value, written as None and handed to handlers as None, where both are declared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support import Bench
from tidegate import (
    DEAD_LETTER,
    SKIP,
    App,
    Context,
    EventTime,
    Monotonic,
    ProcessFunction,
    Punctuated,
    Topic,
    ValueState,
)
from tidegate.errors import EncodeError, ServiceFailedError, TombstoneError
from tidegate.testing import AppHarness
from tidegate.testing.helpers import all_records


class Customer(msgspec.Struct, frozen=True):
    id: str
    at: int = 0


async def follow(ctx: Context, event: Customer | None, known: ValueState[Customer | None]) -> None:
    if event is None:
        known.clear()
        ctx.emit("deleted")
    else:
        known.value = event
        ctx.emit("known")


async def known_only(ctx: Context, event: Customer, known: ValueState[Customer | None]) -> None:
    known.value = event
    ctx.emit("known")


async def anything(ctx: Context, event: Any, known: ValueState[Customer | None]) -> None:
    ctx.emit("deleted" if event is None else "known")


def raw_values(harness: AppHarness, topic: str) -> list[bytes | None]:
    return [record.value for _, record in harness.run(all_records(harness.log, topic))]


# -- read --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"parallelism": 3}], ids=["direct", "behind a shuffle"])
@pytest.mark.parametrize("topic", [{}, {"value_type": Customer, "compact": True}, {"value_type": Customer | None}])
def test_a_handler_whose_event_type_allows_none_is_handed_tombstones(
    options: dict[str, Any], topic: dict[str, Any]
) -> None:
    with Bench(follow, service=options, topic=topic) as b:
        b.put("a", Customer("a"))
        b.put("b", Customer("b"))
        b.put("a", None)
        assert b.outputs(b.out) == ["known", "known", "deleted"]
        assert b.value("known", "a") is None
        assert b.value("known", "b") == Customer("b")


def test_a_handler_without_an_event_type_receives_tombstones() -> None:
    with Bench(anything) as b:
        b.put("a", None)
        assert b.outputs(b.out) == ["deleted"]


def test_a_class_says_so_in_its_parameters() -> None:
    class Follow(ProcessFunction[Customer | None, str]):
        async def process(self, ctx: Context, event: Customer | None) -> None:
            ctx.emit("deleted" if event is None else "known")

    with Bench(Follow) as b:
        b.put("a", Customer("a"))
        b.put("a", None)
        assert b.outputs(b.out) == ["known", "deleted"]


def test_a_handler_that_waits_is_handed_them() -> None:
    import asyncio

    async def wait(ctx: Context, event: Customer | None, seen: ValueState[int | None]) -> None:
        await asyncio.sleep(0)
        seen.value = (seen.value or 0) + 1
        ctx.emit("deleted" if event is None else "known")

    with Bench(wait) as b:
        for event in (Customer("a"), None, None):
            b.put("a", event, settle=False)
        b.settle()
        assert b.outputs(b.out) == ["known", "deleted", "deleted"]


@pytest.mark.parametrize("options", [{}, {"parallelism": 3}, {"key_by": "id"}], ids=["direct", "shuffled", "re-keyed"])
def test_a_handler_that_does_not_goes_by_its_policy(options: dict[str, Any]) -> None:
    with Bench(known_only, service={"errors": DEAD_LETTER, **options}, topic={"compact": True}) as b:
        b.put("a", Customer("a"))
        b.put("a", None)
        b.put("b", Customer("b"))
        assert b.outputs(b.out) == ["known", "known"]
        (letter,) = b.dead_letters(b.service)
        assert (letter.error_type, letter.key, letter.value) == ("DecodeError", b"a", None)
        assert "event: X | None" in letter.error
        assert letter.origin is not None
        assert letter.origin.topic == "events"


def test_the_default_policy_stops_with_advice() -> None:
    with Bench(known_only, topic={"compact": True}) as b, pytest.raises(ServiceFailedError, match=r"event: X \| None"):
        b.put("a", None)


def test_dead_letters_distinguish_tombstones_from_empty_values_and_null() -> None:
    with Bench(known_only, service={"errors": DEAD_LETTER}, topic={"compact": True}) as b:
        for value in (None, b"", b"null"):
            b.send_raw(b.events, key=b"a", value=value)
        assert [letter.value for letter in b.dead_letters(b.service)] == [None, b"", b"null"]


def test_a_tombstone_keeps_its_own_time_where_time_is_in_the_value() -> None:
    async def times(ctx: Context, event: Customer | None) -> None:
        ctx.emit(ctx.timestamp)

    with Bench(times, topic={"time": EventTime("at"), "watermark": Monotonic()}) as b:
        b.put("a", Customer("a", at=70))
        b.put("a", None, timestamp=80)
        assert b.outputs(b.out) == [70, 80]


def test_a_tombstone_says_nothing_of_time_where_records_say_it() -> None:
    mark = Punctuated(mark=lambda customer, at: customer.at)

    async def marks(ctx: Context, event: Customer | None) -> None:
        ctx.emit(event is None)

    with Bench(marks, topic={"watermark": mark}) as b:
        b.put("a", Customer("a", at=70), timestamp=80)
        b.put("a", None, timestamp=90)
        assert b.outputs(b.out) == [False, True]
        assert b.watermark(b.service) == 70


# -- write -------------------------------------------------------------------------------------------------------------


def deleting(out: Any, handler: Any) -> tuple[App, Topic[Any]]:
    app = App("app", partitions=1)
    events: Topic[Any] = app.topic("events")
    app.process(events, to=out(app), name="service", errors=DEAD_LETTER)(handler)
    return app, events


async def emit_none(ctx: Context, event: Any) -> None:
    ctx.emit(event)


async def delete(ctx: Context, event: str) -> None:
    ctx.delete(event, to="out", timestamp=7, headers=(("h", b"1"),))


@pytest.mark.parametrize("options", [{"value_type": Customer, "compact": True}, {"value_type": Customer | None}, {}])
def test_none_is_emitted_as_a_record_without_a_value(options: dict[str, Any]) -> None:
    app, events = deleting(lambda app: app.topic("out", **options), emit_none)
    with AppHarness(app) as harness:
        harness.send(events, None, key="a")
        assert raw_values(harness, "out") == [None]
        assert harness.outputs("out") == [None]
        (record,) = harness.records("out")
        assert (record.key, record.value) == ("a", None)


def test_delete_sends_a_tombstone_for_a_key() -> None:
    app, events = deleting(lambda app: app.topic("out", value_type=Customer, compact=True, key="id"), delete)
    with AppHarness(app) as harness:
        harness.send(events, "ann", key="x")
        (record,) = harness.records("out")
        assert (record.key, record.value, record.timestamp, record.headers) == ("ann", None, 7, (("h", b"1"),))


def test_none_is_refused_without_tombstone_support() -> None:
    app, events = deleting(lambda app: app.topic("out", value_type=Customer), emit_none)
    with AppHarness(app) as harness:
        harness.send(events, None, key="a")
        (letter,) = harness.dead_letters("service")
        assert letter.error_type == "TombstoneError"
        assert "compact=True or value_type=X | None" in letter.error
        assert raw_values(harness, "out") == []


def test_a_tombstone_needs_a_key_where_values_say_theirs() -> None:
    app, events = deleting(lambda app: app.topic("out", value_type=Customer, compact=True, key="id"), emit_none)
    with AppHarness(app) as harness:
        harness.send(events, None, key="a")
        (letter,) = harness.dead_letters("service")
        assert letter.error_type == "EncodeError"
        assert "ctx.delete(key, to=...)" in letter.error


def test_a_failed_handlers_delete_is_rolled_back() -> None:
    async def fail(ctx: Context, event: str) -> None:
        ctx.delete(event)
        raise RuntimeError

    app, events = deleting(lambda app: app.topic("out", compact=True), fail)
    with AppHarness(app) as harness:
        harness.send(events, "ann", key="x")
        assert raw_values(harness, "out") == []


def test_the_harness_sends_tombstones_as_topics_take_them() -> None:
    app = App("app", partitions=1)
    table = app.topic("table", value_type=Customer, compact=True, key="id")
    plain = app.topic("plain", value_type=Customer)
    with AppHarness(app) as harness:
        harness.send(table, Customer("a"))
        harness.send(table, None, key="a")
        assert harness.outputs(table) == [Customer("a"), None]
        with pytest.raises(EncodeError, match="pass key="):
            harness.send(table, None)  # type: ignore[misc]
        with pytest.raises(TombstoneError, match="plain"):
            harness.send(plain, None, key="a")


def test_a_downstream_service_sees_tombstones() -> None:
    app = App("app", partitions=2)
    events: Topic[Any] = app.topic("events")
    table = app.topic("table", value_type=Customer, compact=True)
    out = app.topic("out", value_type=str)

    @app.process(events, to=table)
    async def maintain(ctx: Context, event: Any) -> None:
        ctx.emit(None if event == "gone" else Customer(str(ctx.key)))

    @app.process(table, to=out)
    async def watch(ctx: Context, event: Customer | None, known: ValueState[Customer | None]) -> None:
        ctx.emit(f"{known.value} → {event}")
        known.value = event

    with AppHarness(app) as harness:
        for event in ("here", "gone", "here"):
            harness.send(events, event, key="a")
        here = "Customer(id='a', at=0)"
        assert harness.outputs(out) == [f"None → {here}", f"{here} → None", f"None → {here}"]


# -- kept apart --------------------------------------------------------------------------------------------------------


def test_a_savepoint_distinguishes_in_flight_tombstones_from_empty_values_and_null(tmp_path: Path) -> None:
    seen: list[bytes | None] = []

    def two() -> App:
        app = App("app", partitions=2)
        events: Topic[bytes] = app.topic("events", value_type=bytes, compact=True)
        between = app.topic("between", value_type=bytes, compact=True)

        @app.process(events, to=between)
        async def first(ctx: Context, event: bytes | None) -> None:
            ctx.emit(event)

        @app.process(between)
        async def second(ctx: Context, event: bytes | None, count: ValueState[int | None]) -> None:
            count.value = (count.value or 0) + 1
            seen.append(event)

        return app

    values = [None, b"", b"null", b"x"]
    with AppHarness(two(), checkpoints=tmp_path) as harness:
        for value in values:
            harness.send_raw("events", key=b"k", value=value, settle=False)
        harness.settle(commit=False)
        manifest = harness.checkpoint("cut")
        reader = harness.savepoint("cut")
        flying = [record.value for task in manifest.tasks for record in reader.in_flight(task)]
        seen.clear()
        harness.restore("cut", partitions=3)
        assert flying == values
        assert seen == values
        assert harness.state("second", "count", "k") == 4


def test_a_skipped_tombstone_is_only_counted() -> None:
    with Bench(known_only, service={"errors": SKIP}, topic={"compact": True}) as b:
        b.put("a", None)
        b.put("a", Customer("a"))
        assert b.outputs(b.out) == ["known"]
