"""Event time: where a record's time comes from, how watermarks move, and how time is passed on between services."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support import Bench, bounded_run
from tidegate import (
    DEAD_LETTER,
    MAX_TIME,
    MIN_TIME,
    App,
    BoundedOutOfOrderness,
    BrokerTime,
    Context,
    EventTime,
    IngestionTime,
    Monotonic,
    ProcessingTime,
    Punctuated,
    Timer,
    TimeSource,
    WatermarkGenerator,
    WatermarkStrategy,
)
from tidegate.errors import DefinitionError, UsageError
from tidegate.keys import partition_of
from tidegate.logs.base import TopicPartition
from tidegate.testing import AppHarness

seen: list[Any] = []
gates: dict[str, asyncio.Event] = {}
ETERNAL = Monotonic(idle_after=None)


@pytest.fixture(autouse=True)
def _nothing_seen() -> None:
    seen.clear()
    gates.clear()


def keys_of(partitions: int) -> Iterator[str]:
    """One key for each partition, in their order."""
    for partition in range(partitions):
        yield next(key for key in map(str, range(1000)) if partition_of(key.encode(), partitions) == partition)


# -- where a record's time comes from ----------------------------------------------------------------------------------


async def note_time(ctx: Context, event: Any) -> None:
    seen.append(ctx.timestamp)
    ctx.emit(event)


SOURCES: dict[str, tuple[TimeSource, int]] = {
    "event: a field": (EventTime("at"), 111),
    "event: a function": (EventTime(lambda event: event["at"] * 2), 222),
    "event: the sender's stamp": (EventTime(), 333),
    "broker": (BrokerTime(), 5000),
    "ingestion": (IngestionTime(), 9000),
    "processing": (ProcessingTime(), 9000),
}


@pytest.mark.parametrize(("source", "expected"), SOURCES.values(), ids=SOURCES.keys())
def test_the_source_of_time_changes_without_touching_the_handler(source: TimeSource, expected: int) -> None:
    with Bench(note_time, topic={"time": source}, now=5000) as b:
        b.put("k", {"at": 111}, timestamp=333, settle=False)
        b.clock.advance(4)
        b.settle()
        assert seen == [expected]
        assert [record.timestamp for record in b.records(b.out)] == [expected]


@pytest.mark.parametrize("source", [EventTime("at"), EventTime(lambda event: event["at"])])
def test_an_event_time_that_is_a_float_of_seconds_is_refused(source: TimeSource) -> None:
    with Bench(note_time, topic={"time": source}, service={"errors": DEAD_LETTER}) as b:
        b.put("k", {"at": 1_700_000_000.25})
        assert seen == []
        (letter,) = b.dead_letters(b.service)
        assert "milliseconds" in letter.error


@pytest.mark.parametrize(("at", "said"), [(1_700_000_000, 1), (1_700_000_000_000, 0), (86_400_000, 0), (1000, 0)])
def test_event_times_that_seem_to_be_seconds_are_taken_and_mentioned_once(
    at: int, said: int, caplog: pytest.LogCaptureFixture
) -> None:
    with Bench(note_time, topic={"time": EventTime("at")}, now=1_700_000_500_000) as b:
        for _ in range(3):
            b.put("k", {"at": at})
        assert seen == [at] * 3
    notes = [record.getMessage() for record in caplog.records if record.name == "tidegate.time.sources"]
    assert len(notes) == said
    assert all("'at'" in note and "milliseconds" in note for note in notes)


def test_a_topic_has_its_own_source_or_the_apps() -> None:
    app = App("app", time=EventTime("at"))
    first, second = app.topic("first"), app.topic("second", time=EventTime("when"))

    @app.process(first, second)
    async def service(ctx: Context, event: Any) -> None:
        seen.append(ctx.timestamp)

    with AppHarness(app) as harness:
        harness.send(first, {"at": 1}, key="k")
        harness.send(second, {"when": 2}, key="k")
        assert seen == [1, 2]


def two_steps(*, settings: dict[str, Any] | None = None, **topic: Any) -> tuple[App, Any, Any]:
    app = App("app", **(settings or {}))
    start, middle = app.topic("start", **topic), app.topic("middle", **topic)

    @app.process(start, to=middle)
    async def first(ctx: Context, event: Any) -> None:
        ctx.emit(event)

    @app.process(middle)
    async def second(ctx: Context, event: Any) -> None:
        seen.append((ctx.timestamp, ctx.late))

    return app, start, second


@pytest.mark.parametrize(("source", "expected"), [(IngestionTime(), 5000), (ProcessingTime(), 8000), (EventTime(), 1)])
def test_ingestion_time_is_kept_and_processing_time_is_read_again(source: TimeSource, expected: int) -> None:
    app, start, _ = two_steps(time=source)
    with AppHarness(app, now=5000) as harness:
        harness.send(start, 1, key="k", timestamp=1, settle=False)
        harness.run(harness.engine.read_once())
        harness.run(harness.engine.work_once())
        harness.run(harness.engine.commit_all())
        harness.clock.advance(3)
        harness.settle()
        assert seen == [(expected, False)]


@pytest.mark.parametrize("at", ["soon", None, 10**30, float(10**20)])
def test_a_record_without_a_possible_time_cannot_be_read(at: Any) -> None:
    with Bench(note_time, topic={"time": EventTime("at")}, service={"errors": DEAD_LETTER}) as b:
        b.send_raw(
            b.events,
            key=b"k",
            value=b'{"at":%s}' % (b'"soon"' if at == "soon" else b"null" if at is None else str(int(at)).encode()),
        )
        b.put("k", {"at": 5})
        assert seen == [5]
        (letter,) = b.dead_letters(b.service)
        assert (letter.error_type, letter.error.partition(":")[0]) == (
            "DecodeError",
            "the time or the key of the record cannot be found",
        )


# -- watermarks of one partition ---------------------------------------------------------------------------------------


async def note_watermark(ctx: Context, event: Any) -> None:
    seen.append((ctx.timestamp, ctx.watermark, ctx.late))


def test_monotonic_time_is_just_before_the_highest_record() -> None:
    with Bench(note_watermark, topic={"watermark": Monotonic()}) as b:
        for timestamp in (100, 200, 150, 200, 300):
            b.put("k", timestamp=timestamp)
        assert seen == [
            (100, MIN_TIME, False),
            (200, 99, False),
            (150, 199, True),
            (200, 199, False),
            (300, 199, False),
        ]
        assert b.watermark(b.service) == 299


def test_bounded_out_of_orderness_waits_that_long() -> None:
    with Bench(note_watermark, topic={"watermark": BoundedOutOfOrderness(by=5)}) as b:
        for timestamp in (10_000, 5_000, 4_999, 20_000, 14_999):
            b.put("k", timestamp=timestamp)
        assert [late for _, _, late in seen] == [False, False, True, False, True]
        assert b.watermark(b.service) == 14_999


def test_a_punctuated_watermark_advances_with_marked_records() -> None:
    marks = Punctuated(mark=lambda value, timestamp: timestamp if value == "mark" else None)
    with Bench(note_watermark, topic={"watermark": marks}) as b:
        for event, timestamp in (("x", 100), ("mark", 50), ("x", 500), ("mark", 40)):
            b.put("k", event, timestamp=timestamp)
        assert [watermark for _, watermark, _ in seen] == [MIN_TIME, MIN_TIME, 50, 50]
        assert b.watermark(b.service) == 50


class EveryThird(WatermarkGenerator):
    def __init__(self) -> None:
        self.timestamps: list[int] = []

    def observe(self, timestamp: int, value: Any) -> int:
        self.timestamps.append(timestamp)
        return min(self.timestamps[-3:]) if len(self.timestamps) % 3 == 0 else MIN_TIME


@dataclass(frozen=True, kw_only=True)
class Thirds(WatermarkStrategy):
    def generator(self) -> WatermarkGenerator:
        return EveryThird()


def test_a_strategy_of_ones_own() -> None:
    with Bench(note_watermark, topic={"watermark": Thirds()}) as b:
        for timestamp in (100, 300, 200, 50, 60, 70, 500):
            b.put("k", timestamp=timestamp)
        assert [watermark for _, watermark, _ in seen] == [MIN_TIME] * 3 + [100] * 4


@pytest.mark.parametrize("key_by", [None, "id"])
@pytest.mark.parametrize(
    "mark", [lambda value, timestamp: value["mark"], lambda value, timestamp: value.get("mark", "")]
)
def test_a_failed_watermark_strategy_fails_only_its_record(mark: Any, key_by: str | None) -> None:
    service = {"errors": DEAD_LETTER, "key_by": key_by}
    with Bench(note_watermark, topic={"watermark": Punctuated(mark=mark)}, service=service) as b:
        for event in ({"id": "a", "mark": 5}, {"id": "b"}, {"id": "c", "mark": 7}):
            b.put("k", event, timestamp=100)
        assert len(seen) == 2
        (letter,) = b.dead_letters(b.service)
        assert letter.value == b'{"id":"b"}'
        assert b.watermark(b.service) == 7


def test_a_watermark_never_regresses_even_after_a_restart() -> None:
    with Bench(note_watermark, topic={"watermark": ETERNAL}) as b:
        b.put("k", timestamp=1000)
        b.restart()
        assert b.watermark(b.service) == 999
        b.put("k", timestamp=500)
        assert seen[-1] == (500, 999, True)
        assert b.watermark(b.service) == 999


# -- several partitions and inputs -------------------------------------------------------------------------------------


def test_a_tasks_watermark_is_the_minimum_of_its_inputs() -> None:
    app = App("app", watermark=ETERNAL)
    left, right = app.topic("left"), app.topic("right")

    @app.process(left, right)
    async def service(ctx: Context, event: Any) -> None: ...

    with AppHarness(app) as harness:
        harness.send(left, 1, key="k", timestamp=1000)
        assert harness.watermark(service) == MIN_TIME
        harness.send(right, 1, key="k", timestamp=500)
        assert harness.watermark(service) == 499
        harness.send(right, 1, key="k", timestamp=2000)
        assert harness.watermark(service) == 999


def test_each_partition_has_its_own_watermark_and_downstream_tasks_take_the_minimum() -> None:
    app, start, second = two_steps(watermark=ETERNAL, partitions=2)
    with AppHarness(app) as harness:
        zero, one = keys_of(2)
        harness.send(start, 1, key=zero, timestamp=1000)
        assert [task.time.watermark for task in harness._tasks("first")] == [999, MIN_TIME]
        assert harness.watermark(second) == MIN_TIME
        harness.send(start, 1, key=one, timestamp=400)
        assert [task.time.watermark for task in harness._tasks("first")] == [999, 399]
        assert [task.time.watermark for task in harness._tasks("second")] == [399, 399]


# -- idleness ----------------------------------------------------------------------------------------------------------


def test_an_idle_partition_does_not_hold_back_the_watermark_forever() -> None:
    app, start, second = two_steps(watermark=Monotonic(idle_after=60), partitions=2)
    with AppHarness(app) as harness:
        zero, one = keys_of(2)
        harness.send(start, 1, key=zero, timestamp=1000)
        harness.send(start, 1, key=one, timestamp=100)
        harness.advance(seconds=59)
        harness.send(start, 1, key=zero, timestamp=2000)
        assert harness.watermark(second) == 99
        harness.advance(seconds=2)
        assert harness.watermark(second) == 1999
        harness.send(start, 1, key=one, timestamp=1500)
        assert harness.watermark(second) == 1999
        harness.send(start, 1, key=zero, timestamp=3000)
        assert harness.watermark(second) == 1999  # it is awake, and holds time back again
        harness.send(start, 1, key=one, timestamp=5000)
        assert harness.watermark(second) == 2999


def test_a_partition_without_records_does_not_hold_back_the_watermark_forever() -> None:
    app, start, second = two_steps(watermark=Monotonic(idle_after=60), partitions=4)
    with AppHarness(app) as harness:
        (key, *_) = keys_of(4)
        harness.send(start, 1, key=key, timestamp=1000)
        assert harness.watermark(second) == MIN_TIME
        harness.advance(seconds=30)
        harness.send(start, 1, key=key, timestamp=2000)
        harness.advance(seconds=30)
        assert harness.watermark(second) == 1999


def test_a_watermark_and_an_idle_marker_sent_together_both_apply() -> None:
    """It tells others at most once in `progress_interval`; here it falls silent before it has told its last time."""
    app, start, second = two_steps(
        settings={"progress_interval": 120}, watermark=Monotonic(idle_after=60), partitions=2
    )
    with AppHarness(app) as harness:
        (key, *_) = keys_of(2)
        harness.send(start, 1, key=key, timestamp=1000)
        harness.advance(seconds=1)
        harness.send(start, 1, key=key, timestamp=5000)
        assert harness.watermark(second) == MIN_TIME
        harness.advance(seconds=300)
        assert harness.watermark(second) == 4999


def test_clock_adjustments_do_not_affect_idleness() -> None:
    app, start, second = two_steps(watermark=Monotonic(idle_after=60), partitions=2)
    with AppHarness(app) as harness:
        zero, one = keys_of(2)
        harness.send(start, 1, key=zero, timestamp=1000)
        harness.send(start, 1, key=one, timestamp=100)
        harness.advance(seconds=30)
        harness.send(start, 1, key=zero, timestamp=2000)
        for seconds in (3600, -7200):
            harness.clock.jump(seconds)
            harness.advance(seconds=1)
            assert harness.watermark(second) == 99
        harness.advance(seconds=29)
        assert harness.watermark(second) == 1999


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_watermark_does_not_depend_on_the_order_of_idle_partitions(order: tuple[int, int]) -> None:
    app = App("app", watermark=Monotonic(idle_after=60))
    topics = app.topic("left"), app.topic("right")

    @app.process(*topics)
    async def service(ctx: Context, event: Any) -> None: ...

    with AppHarness(app) as harness:
        for number in order:
            harness.send(topics[number], 1, key="k", timestamp=(1000, 400)[number])
            harness.advance(seconds=5)
        assert harness.watermark(service) == 399
        harness.advance(seconds=120)
        assert harness.watermark(service) == 999


def test_a_strategy_may_disable_idleness() -> None:
    app, start, second = two_steps(watermark=ETERNAL, partitions=2)
    with AppHarness(app) as harness:
        harness.send(start, 1, key=next(keys_of(2)), timestamp=1000)
        harness.advance(days=1000)
        assert harness.watermark(second) == MIN_TIME


def test_a_partition_with_unread_records_is_not_idle() -> None:
    app = App("app", watermark=Monotonic(idle_after=60))
    left, right = app.topic("left"), app.topic("right")

    @app.process(left, right)
    async def service(ctx: Context, event: Any) -> None:
        seen.append((event, ctx.late))

    with AppHarness(app) as harness:
        harness.send(left, "old", key="k", timestamp=100)
        harness.send(right, "new", key="k", timestamp=1000)
        # For an hour nobody reads; then one input is read first.
        harness.send(left, "waiting", key="k", timestamp=200, settle=False)
        harness.send(right, "newer", key="k", timestamp=2000, settle=False)
        harness.clock.advance(3600)
        reader = next(iter(harness.engine._readers.values())).reader
        reader.pause([TopicPartition("left", 0)])
        harness.run(harness.engine.read_once())
        for _ in range(3):
            harness.run(harness.engine.work_once())
        reader.resume([TopicPartition("left", 0)])
        harness.settle()
        assert seen[2:] == [("newer", False), ("waiting", False)]


def test_a_partition_that_gets_a_record_during_the_idleness_check_is_not_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    app = App("app", watermark=Monotonic(idle_after=60))
    left, right = app.topic("left"), app.topic("right")

    @app.process(left, right)
    async def service(ctx: Context, event: Any) -> None:
        seen.append((event, ctx.late))

    with AppHarness(app) as harness:
        harness.send(left, "old", key="k", timestamp=100)
        harness.send(right, "new", key="k", timestamp=1000)
        end_offsets = harness.log.end_offsets

        async def slow(sources: Any) -> Any:
            ends = await end_offsets(sources)
            if len(seen) == 3:
                topic = harness.engine.plan.topics["left"]
                record = (b"k", topic.codec.encode("just"), 200, ())
                await harness._append({TopicPartition("left", 0): [record]})
                await harness.engine.read_once()
            return ends

        harness.clock.advance(50)
        harness.send(right, "newer", key="k", timestamp=2000)
        harness.clock.advance(20)
        with monkeypatch.context() as patched:
            patched.setattr(harness.log, "end_offsets", slow)
            harness.run(harness.engine.work_once())
        harness.settle()
        assert seen[3:] == [("just", False)]


def test_a_log_that_does_not_respond_for_an_idle_partition_blocks_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = App("app", watermark=Monotonic(idle_after=60))
    left, right = app.topic("left"), app.topic("right")

    @app.process(left, right)
    async def service(ctx: Context, event: Any) -> None:
        seen.append((event, ctx.late))

    with AppHarness(app) as harness:
        harness.send(left, "old", key="k", timestamp=100)
        end_offsets, answer = harness.log.end_offsets, asyncio.Event()

        async def slow(sources: Any) -> Any:
            await answer.wait()
            return await end_offsets(sources)

        harness.clock.advance(61)
        with monkeypatch.context() as patched:
            patched.setattr(harness.log, "end_offsets", slow)
            harness.send(right, "new", key="k", timestamp=1000, settle=False)
            harness.run(asyncio.wait_for(harness.engine.read_once(), 5))
            for _ in range(3):
                harness.run(asyncio.wait_for(harness.engine.work_once(), 5))
            assert seen[1:] == [("new", False)]
            harness.call(answer.set)
        harness.settle()
        assert harness.watermark(service) == 999


async def wait_here(ctx: Context, event: Any) -> None:
    if event == "wait":
        await gates.setdefault("gate", asyncio.Event()).wait()
    seen.append((event, ctx.timestamp, ctx.late))


def test_a_partition_with_unfinished_records_is_not_idle() -> None:
    with Bench(wait_here, topic={"watermark": Monotonic(idle_after=60)}) as b:
        b.put_quietly("k", "wait", timestamp=100)
        b.clock.advance(3600)
        b.settle(wait=False)
        (task,) = b.engine.tasks.values()
        assert not task.time.idle
        b.call(gates["gate"].set)
        b.settle()
        assert task.time.idle


# -- waiting handlers hold time back -----------------------------------------------------------------------------------


def test_a_watermark_does_not_pass_an_unfinished_record() -> None:
    with Bench(wait_here, topic={"watermark": ETERNAL}) as b:
        b.put_quietly("a", "wait", timestamp=1000)
        b.put_quietly("b", "x", timestamp=5000)
        assert b.watermark(b.service) == MIN_TIME
        b.call(gates["gate"].set)
        b.settle()
        assert b.watermark(b.service) == 4999


def test_after_a_crash_a_watermark_does_not_pass_an_unfinished_record() -> None:
    app = App("app", watermark=ETERNAL)
    left, right = app.topic("left"), app.topic("right")

    @app.process(left, right)
    async def service(ctx: Context, event: Any) -> None:
        ctx.timers.at(ctx.timestamp, name="t")
        if event == "wait":
            await gates.setdefault("gate", asyncio.Event()).wait()
        seen.append((event, ctx.late))

    @service.on_timer("t")
    async def fired(ctx: Context, timer: Timer) -> None:
        seen.append(timer.at)

    with AppHarness(app) as harness:
        for topic, event, timestamp in ((left, "l", 10), (right, "r", 10), (left, "wait", 100), (left, "x", 5000)):
            harness.send(topic, event, key=str(event), timestamp=timestamp, settle=False)
            harness.settle(wait=False)
        seen.clear()
        harness.run(harness.engine.close_tasks(commit=True))
        harness.run(harness._open())
        harness.send(right, "y", key="y", timestamp=9000, settle=False)
        harness.settle(wait=False)
        assert seen == [("y", False)]
        harness.call(gates["gate"].set)
        harness.settle()
        assert seen[:5] == [("y", False), ("wait", False), 10, 10, 100]
        assert harness.watermark(service) == 4999


# -- between services --------------------------------------------------------------------------------------------------


def chain(*, key_by: bool = False, partitions: int = 1) -> tuple[AppHarness, Any, Any]:
    """start → first (emits by timers, after a while) → middle → last."""
    app = App("app", watermark=ETERNAL)
    start, middle = app.topic("start", partitions=partitions), app.topic("middle", partitions=partitions)

    @app.process(start, to=middle)
    async def first(ctx: Context, event: Any) -> None:
        if event is not None:
            ctx.timers.at(event, name="emit")

    @first.on_timer("emit")
    async def emit(ctx: Context, timer: Timer) -> None:
        if "gate" in gates:
            await gates["gate"].wait()
        ctx.emit({"id": ctx.key})

    @app.process(middle, key_by=(lambda event: event["id"]) if key_by else None)
    async def last(ctx: Context, event: Any) -> None:
        seen.append((ctx.timestamp, ctx.late, ctx.watermark < ctx.timestamp))
        ctx.timers.at(ctx.timestamp + 1, name="t")

    @last.on_timer("t")
    async def done(ctx: Context, timer: Timer) -> None:
        seen.append(timer.at)

    return AppHarness(app), start, last


@pytest.mark.parametrize("key_by", [False, True])
def test_a_watermark_is_forwarded_after_the_records_that_it_covers(key_by: bool) -> None:
    harness, start, last = chain(key_by=key_by)
    with harness:
        harness.send(start, 500, key="a", timestamp=100)
        harness.send(start, 300, key="b", timestamp=200)
        assert harness.watermark(last) == 199
        harness.send(start, None, key="x", timestamp=1000)
        assert harness.watermark(last) == 999
        assert seen == [(300, False, True), (500, False, True), 301, 501]


def test_a_watermark_is_forwarded_after_the_output_of_its_timers() -> None:
    harness, start, last = chain()
    with harness:
        harness.send(start, 500, key="a", timestamp=100)
        gates["gate"] = asyncio.Event()
        harness.send(start, None, key="x", timestamp=1000, settle=False)
        harness.settle(wait=False)
        assert harness.watermark(last) <= 499
        harness.call(gates["gate"].set)
        harness.settle()
        assert seen == [(500, False, True), 501]
        assert harness.watermark(last) == 999


def test_time_is_not_passed_on_before_all_due_timers_have_had_their_turn() -> None:
    harness, start, last = chain()
    with harness:
        for number in range(300):
            harness.send(start, 500, key=str(number), timestamp=100, settle=False)
        harness.send(start, None, key="x", timestamp=1000, settle=False)
        (task,), (reader,) = harness._tasks("first"), harness._tasks(last)
        harness.run(harness.engine.read_once())
        # A commit after every few timers, as with a slow handler, and the reader follows at once.
        while task.ready:
            harness.call(lambda: task.dispatcher.run(0))
            harness.run(task.commit())
            harness.run(harness.engine.read_once())
            while reader.ready:
                harness.call(reader.run)
            harness.run(harness.engine.poll_control(timeout=0))
        harness.settle()
        assert {late for _, late, _ in [entry for entry in seen if isinstance(entry, tuple)]} == {False}
        assert len(seen) == 600


def test_a_restarted_service_does_not_treat_unread_records_as_late() -> None:
    harness, start, _ = chain()
    with harness:
        harness.send(start, 500, key="a", timestamp=100, settle=False)
        harness.send(start, None, key="x", timestamp=1000, settle=False)
        # The first service goes all the way, the second does not even begin.
        (task,) = harness._tasks("first")
        harness.run(harness.engine.read_once())
        while task.ready:
            harness.call(task.run)
        harness.run(task.commit())
        harness.crash()
        assert seen == [(500, False, True), 501]


def test_a_cycle_does_not_hold_back_the_watermark() -> None:
    app = App("app", watermark=ETERNAL)
    start, again = app.topic("start"), app.topic("again")

    @app.process(start, again, to=again)
    async def walk(ctx: Context, event: int) -> None:
        seen.append(event)
        if event > 0:
            ctx.emit(event - 1)

    with AppHarness(app) as harness:
        harness.send(start, 3, key="k", timestamp=1000)
        assert seen == [3, 2, 1, 0]
        assert harness.watermark(walk) == 999


def test_in_a_longer_cycle_only_the_edge_that_closes_it_carries_no_time() -> None:
    app = App("app", watermark=ETERNAL)
    start, there, back = app.topic("start"), app.topic("there"), app.topic("back")

    @app.process(start, back, to=there)
    async def ping(ctx: Context, event: int) -> None:
        ctx.emit(event)

    @app.process(there, to=back)
    async def pong(ctx: Context, event: int) -> None:
        seen.append(event)
        if event > 0:
            ctx.emit(event - 1)

    with AppHarness(app) as harness:
        harness.send(start, 2, key="k", timestamp=1000)
        assert seen == [2, 1, 0]
        assert harness.watermark(ping) == 999
        assert harness.watermark(pong) == 999


# -- bounded runs ------------------------------------------------------------------------------------------------------


def test_a_bounded_run_fires_all_timers_and_can_be_repeated() -> None:
    harness, start, _ = chain(key_by=True, partitions=3)
    with harness:
        for turn in range(3):
            for number in range(20):
                harness.send(start, 500, key=str(number), timestamp=100 + turn, settle=False)
            seen.clear()
            bounded_run(harness)
            assert seen.count((500, False, True)) == 20
            assert seen.count(501) == 20


def test_a_bounded_run_stops_at_the_end_offsets_of_its_start() -> None:
    with Bench(wait_here, topic={"watermark": ETERNAL}) as b:
        b.put("k", "before", timestamp=1000, settle=False)

        async def more() -> None:
            writer = await b.log.writer()
            await writer.append({TopicPartition("events", 0): [(b"k", b'"during"', 2000, ())]})

        bounded_run(b, during=more)
        assert seen == [("before", 1000, False)]
        b.settle()
        assert seen[1:] == [("during", 2000, False)]


def test_a_bounded_run_of_a_cycle_ends() -> None:
    app = App("app")
    start, again, out = app.topic("start"), app.topic("again"), app.topic("out")

    @app.process(again, to=[again, out])
    async def walk(ctx: Context, event: int) -> None:
        if event > 0:
            ctx.emit(event - 1)
        else:
            ctx.emit("done", to=out)

    @app.process(start, to=again)
    async def begin(ctx: Context, event: int) -> None:
        ctx.emit(event)

    @app.process(out)
    async def end(ctx: Context, event: Any) -> None:
        seen.append(event)

    with AppHarness(app) as harness:
        harness.send(start, 5, key="k", timestamp=1, settle=False)
        bounded_run(harness)
        assert seen == ["done"]


def test_a_bounded_run_of_a_service_that_only_feeds_itself_ends() -> None:
    app = App("app")
    again, out = app.topic("again"), app.topic("out")

    @app.process(again, to=[again, out])
    async def walk(ctx: Context, event: int) -> None:
        ctx.emit(event - 1) if event > 0 else ctx.emit("done", to=out)

    @app.process(out)
    async def end(ctx: Context, event: Any) -> None:
        seen.append(event)
        ctx.timers.after(10, name="t")

    @end.on_timer("t")
    async def last(ctx: Context, timer: Timer) -> None:
        seen.append("timer")

    with AppHarness(app) as harness:
        harness.send(again, 5, key="k", timestamp=1, settle=False)
        bounded_run(harness)
        assert seen == ["done", "timer"]


def test_finish_ends_event_time_and_a_restart_begins_without_any() -> None:
    with Bench(note_watermark, topic={"watermark": ETERNAL}) as b:
        b.put("k", timestamp=1000)
        b.finish()
        assert b.watermark(b.service) == MAX_TIME
        b.restart()
        assert b.watermark(b.service) == MIN_TIME
        b.put("k", timestamp=500)
        assert seen[-1] == (500, MIN_TIME, False)


def test_a_bound_below_zero_which_would_make_all_records_late_is_refused() -> None:
    with pytest.raises(DefinitionError, match="at least 0, not -5"):
        BoundedOutOfOrderness(by=-5)


@pytest.mark.parametrize("strategy", [BoundedOutOfOrderness, Monotonic])
def test_a_partition_cannot_be_idle_before_it_is_silent(strategy: Any) -> None:
    with pytest.raises(DefinitionError, match="idle_after must be at least 0"):
        strategy(idle_after=-1)


@pytest.mark.parametrize("span", ["5", None, math.nan, math.inf])
def test_a_span_that_is_none_is_named(span: Any) -> None:
    with pytest.raises(UsageError, match="seconds or a timedelta, not"):
        BoundedOutOfOrderness(by=span)
