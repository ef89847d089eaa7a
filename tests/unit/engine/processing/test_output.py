"""Emitted records: target, key, timestamp and headers; services with several inputs."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
import pytest

from tidegate import SKIP, STOP, App, Context, Default, ValueState
from tidegate.engine.processing.output import Emissions, Emitted
from tidegate.errors import DefinitionError, ServiceFailedError
from tidegate.keys import partition_of
from tidegate.logs.base import TopicPartition
from tidegate.testing import AppHarness


class Order(msgspec.Struct, frozen=True):
    id: int
    customer: str


def build(handler: Any, *, to: Any = None, errors: Any = STOP, **topics: dict[str, Any]) -> tuple[App, dict[str, Any]]:
    """An app with a service from `events` to the other topics, in their order."""
    app = App("app")
    made = {name: app.topic(name, **options) for name, options in {"events": {}, **topics}.items()}
    outputs = [topic for name, topic in made.items() if name != "events"] if to is None else to(made)
    app.process(made["events"], to=outputs, name="service", errors=errors)(handler)
    return app, made


def test_the_first_declared_topic_is_the_default_one() -> None:
    async def handle(ctx: Context, event: Any) -> None:
        ctx.emit("default")
        ctx.emit("by topic", to=topics["second"])
        ctx.emit("by name", to="second")
        ctx.emit("by topic", to=topics["first"])

    app, topics = build(handle, first={}, second={})
    with AppHarness(app) as harness:
        harness.send(topics["events"], 1, key="k")
        assert harness.outputs("first") == ["default", "by topic"]
        assert harness.outputs("second") == ["by topic", "by name"]


def test_side_outputs_may_have_names_of_their_own() -> None:
    async def handle(ctx: Context, event: Any) -> None:
        ctx.emit("a")
        ctx.emit("b", to="late")
        ctx.emit("c", to=topics["second"])

    app, topics = build(handle, to=lambda made: {"main": made["first"], "late": made["second"]}, first={}, second={})
    with AppHarness(app) as harness:
        harness.send(topics["events"], 1, key="k")
        assert harness.outputs("first") == ["a"]
        assert harness.outputs("second") == ["b", "c"]


def test_one_topic_may_be_the_whole_declaration() -> None:
    async def handle(ctx: Context, event: Any) -> None:
        ctx.emit(event)

    app, topics = build(handle, to=lambda made: made["first"], first={})
    with AppHarness(app) as harness:
        harness.send(topics["events"], 1, key="k")
        assert harness.outputs("first") == [1]


@pytest.mark.parametrize("to", ["unknown", None])
def test_a_topic_that_is_not_declared_is_refused_with_advice(to: Any) -> None:
    async def handle(ctx: Context, event: Any) -> None:
        ctx.emit(1, to=to)

    app, topics = build(handle, to=lambda _: [], first={})
    with AppHarness(app) as harness, pytest.raises(ServiceFailedError, match=r"to=\[\.\.\.\]"):
        harness.send(topics["events"], 1, key="k")


@pytest.mark.parametrize("wait", [False, True], ids=["direct", "waiting"])
@pytest.mark.parametrize(
    "send",
    [
        lambda app, topic: topic.send(value=1),
        lambda app, topic: topic.send_many([1]),
        lambda app, topic: app.faust.send("first", value=1),
    ],
    ids=["one", "many", "faust"],
)
def test_sending_past_the_context_which_would_double_is_refused_in_a_handler(send: Any, wait: bool) -> None:
    async def handle(ctx: Context, event: Any) -> None:
        if wait:
            await asyncio.sleep(0)
        await send(app, topics["first"])

    app, topics = build(handle, first={})
    with AppHarness(app) as harness, pytest.raises(ServiceFailedError, match=r"ctx\.emit\(value, to='first'\)"):
        harness.send(topics["events"], 1, key="k")


def test_a_key_is_the_given_one_else_the_topics_else_the_current_one() -> None:
    async def handle(ctx: Context, event: Any) -> None:
        order = Order(7, "ann")
        ctx.emit(order, key="given")
        ctx.emit(order)
        ctx.emit(order, to="plain")
        ctx.emit(order, to="plain", key=17)
        ctx.emit(order, to="by_field")

    keyed = {"value_type": Order, "key": lambda order: order.customer}
    app, topics = build(handle, keyed=keyed, plain={"value_type": Order}, by_field={"value_type": Order, "key": "id"})
    with AppHarness(app) as harness:
        harness.send(topics["events"], 1, key="current")
        assert [record.key for record in harness.records("keyed")] == ["given", "ann"]
        assert [record.key for record in harness.records("plain")] == ["current", "17"]
        assert [record.key for record in harness.records("by_field")] == [7]


def test_a_record_lies_in_the_partition_of_its_key() -> None:
    async def handle(ctx: Context, event: Any) -> None:
        ctx.emit(event)

    app, topics = build(handle, out={"partitions": 8})
    with AppHarness(app, partitions=3) as harness:
        harness.send_many(topics["events"], range(50), key=str)
        records = harness.records("out")
        assert len(records) == 50
        assert all(record.partition == partition_of(record.key.encode(), 8) for record in records)


def test_a_time_is_the_given_one_else_the_current_records() -> None:
    async def handle(ctx: Context, event: Any) -> None:
        ctx.emit("current")
        ctx.emit("given", timestamp=99)
        ctx.emit("datetime", timestamp=datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC))

    app, topics = build(handle, out={})
    with AppHarness(app) as harness:
        harness.send(topics["events"], 1, key="k", timestamp=5)
        assert [record.timestamp for record in harness.records("out")] == [5, 99, 1000]


@pytest.mark.parametrize("timestamp", [1_700_000_000, 1_700_000_000.25])
def test_a_time_in_seconds_is_refused(timestamp: Any) -> None:
    async def handle(ctx: Context, event: Any) -> None:
        ctx.emit("given", timestamp=timestamp)

    app, topics = build(handle, out={})
    with AppHarness(app) as harness, pytest.raises(ServiceFailedError, match="milliseconds"):
        harness.send(topics["events"], 1, key="k", timestamp=1_700_000_000_000)


def test_headers_are_passed_as_given_and_the_engines_own_are_not_seen() -> None:
    async def first(ctx: Context, event: Any) -> None:
        ctx.emit(event, headers=[("trace", b"1"), ("trace", b"2")])
        ctx.emit(event, headers=ctx.headers)

    app, topics = build(first, out={})
    seen: list[Any] = []

    @app.process(topics["out"])
    async def second(ctx: Context, event: Any) -> None:
        seen.append(tuple(ctx.headers))

    with AppHarness(app) as harness:
        harness.send(topics["events"], 1, key="k", headers=[("from", b"outside")])
        assert [tuple(record.headers) for record in harness.records("out")] == seen
        assert seen == [(("trace", b"1"), ("trace", b"2")), (("from", b"outside"),)]


@pytest.mark.parametrize("headers", [[("name", "text")], [("name", None)], [(1, b"x")], ["name"]])
def test_headers_that_no_log_could_write_are_refused_where_they_are_given(headers: Any) -> None:
    async def handle(ctx: Context, event: Any) -> None:
        ctx.emit("before")
        if event == "bad":
            ctx.emit("bad", headers=headers)

    app, topics = build(handle, errors=SKIP, out={})
    with AppHarness(app) as harness:
        harness.send(topics["events"], "bad", key="k")
        harness.send(topics["events"], "good", key="k")
        assert harness.outputs("out") == ["before"]


@pytest.mark.parametrize("wrong", ["text", 1, {"id": 1, "customer": "x"}])
def test_a_value_of_another_type_is_refused_where_it_is_emitted(wrong: Any) -> None:
    async def handle(ctx: Context, event: Any) -> None:
        ctx.emit(Order(1, "before"))
        ctx.emit(event)

    app, topics = build(handle, errors=SKIP, out={"value_type": Order})
    with AppHarness(app) as harness:
        harness.send(topics["events"], wrong, key="k")
        assert harness.outputs("out") == []


def test_an_emitted_value_is_the_value_at_the_time_of_the_call() -> None:
    async def handle(ctx: Context, event: Any) -> None:
        values: list[int] = []
        for number in range(3):
            values.append(number)
            ctx.emit(values)

    app, topics = build(handle, out={})
    with AppHarness(app) as harness:
        harness.send(topics["events"], 1, key="k")
        assert harness.outputs("out") == [[0], [0, 1], [0, 1, 2]]


def test_the_order_of_a_tasks_outputs_is_kept() -> None:
    async def handle(ctx: Context, event: Any) -> None:
        for number in range(3):
            ctx.emit([event, number])

    app, topics = build(handle, out={})
    with AppHarness(app) as harness:
        harness.send_many(topics["events"], range(100), key=lambda event: str(event % 7))
        assert harness.outputs("out") == [[event, number] for event in range(100) for number in range(3)]


# -- inputs ------------------------------------------------------------------------------------------------------------


def test_several_inputs_of_a_key_meet_in_one_actor() -> None:
    from tidegate import MapState

    app = App("app")
    left, right = app.topic("left", value_type=Order), app.topic("right", value_type=int)

    @app.process(left, right)
    async def joined(ctx: Context, event: Any, seen: MapState[str, str]) -> None:
        assert ctx.origin is not None
        seen[ctx.origin.topic] = repr(event)

    with AppHarness(app, partitions=4) as harness:
        for key in "abcdef":
            harness.send(left, Order(1, key), key=key)
            harness.send(right, 2, key=key)
        for key in "abcdef":
            assert harness.state(joined, "seen", key) == {"left": repr(Order(1, key)), "right": "2"}


def test_inputs_that_are_not_co_partitioned_are_refused_with_advice() -> None:
    app = App("app")
    left, right = app.topic("left", partitions=2), app.topic("right", partitions=3)

    @app.process(left, right)
    async def joined(ctx: Context, event: Any) -> None: ...

    with pytest.raises(DefinitionError, match=r"left has 2, right has 3.*key_by"), AppHarness(app):
        pass


def test_the_origin_names_the_position_of_a_record() -> None:
    async def handle(ctx: Context, event: Any) -> None:
        assert ctx.origin is not None
        ctx.emit(list(ctx.origin))

    app, topics = build(handle, out={})
    with AppHarness(app, partitions=3) as harness:
        harness.send(topics["events"], 1, key="k")
        harness.send(topics["events"], 2, key="k")
        partition = partition_of(b"k", 3)
        assert harness.outputs("out") == [["events", partition, 0], ["events", partition, 2]]


def test_a_handler_can_identify_its_task() -> None:
    async def handle(ctx: Context, event: Any) -> None:
        ctx.emit([ctx.task.app, ctx.task.service, ctx.task.number])

    app, topics = build(handle, out={})
    with AppHarness(app, partitions=3) as harness:
        harness.send(topics["events"], 1, key="k")
        assert harness.outputs("out") == [["app", "service", partition_of(b"k", 3)]]


def test_records_go_where_their_key_belongs_whether_or_not_the_task_knows_it() -> None:
    """With as many partitions in and out, a key that the task has state of stays in the task's own partition."""

    async def handle(ctx: Context, looks: bool, seen: Annotated[ValueState[int], Default(0)]) -> None:
        if looks:
            seen.value += 1
        ctx.emit("same")
        ctx.emit("other", to="more")
        ctx.emit("given", key=f"other than {ctx.key}")

    four = {"partitions": 4}
    app, topics = build(handle, events=four, same=four, more={"partitions": 3})
    with AppHarness(app) as harness:
        for number in range(40):
            harness.send(topics["events"], number % 2 == 0, key=f"k{number}")
        harness.send_raw(topics["events"], key=b"astray", value=b"false", partition=partition_of(b"astray", 4) ^ 1)
        for topic, count in (("same", 4), ("more", 3)):
            records = harness.records(topic)
            assert len(records) == (82 if topic == "same" else 41)
            assert all(record.partition == partition_of(record.key.encode(), count) for record in records)


@pytest.mark.parametrize("topics", [0, 1, 3])
def test_emitted_records_are_divided_by_target_each_in_its_order(topics: int) -> None:
    records: list[Emitted] = [
        (TopicPartition(f"t{number % topics}", 0), b"k%d" % number, None, number, (("n", b"%d" % number),))
        for number in range(20 if topics else 0)
    ]
    emissions = Emissions()
    for record in records:
        emissions += record
    assert emissions.total == len(records)
    assert [*emissions.each()] == records
    divided = {target: [*columns] for target, columns in emissions.by_target().items()}
    targets = {record[0] for record in records}
    assert divided == {target: [record[1:] for record in records if record[0] == target] for target in targets}
