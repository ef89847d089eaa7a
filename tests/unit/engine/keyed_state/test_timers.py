"""Timers: per key and name, by the watermark or by the clock; each fires once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from math import inf, nan
from pathlib import Path
from typing import Annotated, Any

import pytest

from tests.support import Bench
from tidegate import MAX_TIME, SKIP, Context, Default, MapState, Monotonic, ProcessFunction, Timer, ValueState
from tidegate.errors import ServiceFailedError, UsageError
from tidegate.state.memory import MemoryStore
from tidegate.time.clock import MIN_TIME

fired: list[tuple[Any, ...]] = []
gates: dict[str, asyncio.Event] = {}


@pytest.fixture(autouse=True)
def _nothing_fired() -> None:
    fired.clear()
    gates.clear()


async def obey(ctx: Context, event: Any, count: Annotated[ValueState[int], Default(0)]) -> None:
    """Each event is a list of things to do: set (name, ms[, domain]), cancel (name), wait (gate), fail, list."""
    for operation, *arguments in event:
        match operation:
            case "set":
                ctx.timers.at(arguments[1], name=arguments[0], time=arguments[2] if len(arguments) > 2 else "event")
            case "after":
                ctx.timers.after(arguments[1], name=arguments[0], time=arguments[2])
            case "cancel":
                ctx.emit(ctx.timers.cancel(arguments[0]))
            case "wait":
                await gates.setdefault(arguments[0], asyncio.Event()).wait()
            case "fail":
                raise ValueError("on purpose")
            case "list":
                ctx.emit([[timer.name, timer.at, timer.time] for timer in ctx.timers])
            case "get":
                found = ctx.timers.get(arguments[0])
                ctx.emit(None if found is None else found.at)


async def on_timer(ctx: Context, timer: Timer, count: Annotated[ValueState[int], Default(0)]) -> None:
    fired.append((ctx.key, timer.name, timer.at))
    count.value += 1
    assert ctx.timer == timer
    assert ctx.timestamp == timer.at
    assert ctx.origin is None
    assert ctx.headers == ()
    assert not ctx.late
    assert ctx.timers.get(timer.name) is None


def bench(**options: Any) -> Bench:
    topic = {"watermark": Monotonic(idle_after=None)}
    return Bench(obey, timers={None: on_timer}, topic=topic, now=0, **options)


# -- by the watermark --------------------------------------------------------------------------------------------------


def test_an_event_time_timer_fires_when_the_watermark_reaches_it() -> None:
    with bench() as b:
        b.put("k", [["set", "t", 1000]], timestamp=10)
        b.put("x", [], timestamp=1000)  # the watermark is 999
        assert fired == []
        b.advance(days=365)
        assert fired == []
        b.put("x", [], timestamp=1001)
        assert fired == [("k", "t", 1000)]
        assert b.value("count", "k") == 1
        assert b.timers(b.service, "k") == []


def test_timers_fire_in_the_order_of_their_times() -> None:
    with bench() as b:
        for number in (5, 3, 9, 1, 7):
            b.put(f"k{number}", [["set", "t", number * 100]], timestamp=1)
        b.advance_watermark(10_000)
        assert [at for _, _, at in fired] == [100, 300, 500, 700, 900]


def test_timers_of_one_time_all_fire() -> None:
    with bench() as b:
        for key in "cab":
            b.put(key, [["set", "t", 100], ["set", "u", 100]], timestamp=1)
        b.advance_watermark(100)
        assert sorted(fired) == [(key, name, 100) for key in "abc" for name in "tu"]


def test_stored_and_new_timers_share_one_order() -> None:
    with bench() as b:
        b.put("a", [["set", "t", 100]], timestamp=1)
        b.put("b", [["set", "t", 300]], timestamp=1)
        b.restart()
        b.put("c", [["set", "t", 200]], timestamp=1, settle=False)
        b.put("d", [["set", "t", 50]], timestamp=1, settle=False)
        b.settle(commit=False)
        b.engine.advance_watermark(250)
        b.settle(commit=False)
        assert fired == [("d", "t", 50), ("a", "t", 100), ("c", "t", 200)]
        b.settle()
        b.put("e", [["set", "t", 260]], timestamp=1)
        b.advance_watermark(1000)
        assert fired[3:] == [("e", "t", 260), ("b", "t", 300)]


# -- by the clock ------------------------------------------------------------------------------------------------------


def test_a_processing_time_timer_fires_when_the_clock_reaches_it() -> None:
    with bench() as b:
        b.put("k", [["after", "t", 60, "processing"]])
        b.advance_watermark(10**12)
        b.advance(seconds=59)
        assert fired == []
        b.advance(seconds=1)
        assert fired == [("k", "t", 60_000)]


def test_no_timer_is_skipped_by_a_long_while() -> None:
    async def again(ctx: Context, timer: Timer) -> None:
        fired.append((timer.at, ctx.now))
        ctx.timers.after(3600, name="t", time="processing")

    with Bench(obey, timers={"t": again}, now=0) as b:
        b.put("k", [["after", "t", 3600, "processing"]])
        b.advance(days=1)
        assert fired == [(hour * 3_600_000, hour * 3_600_000) for hour in range(1, 25)]


def test_each_timer_fires_once_when_the_clock_jumps() -> None:
    with bench() as b:
        b.put("k", [["after", "t", 60, "processing"]])
        for jump in (3600, -3600, 3600, -7200, 3600):
            b.clock.jump(jump)
            b.settle()
        assert fired == [("k", "t", 60_000)]
        b.put("k", [["after", "u", 60, "processing"]])
        b.advance(seconds=61)
        assert [name for _, name, _ in fired] == ["t", "u"]


# -- setting, moving, cancelling ---------------------------------------------------------------------------------------


def test_setting_a_name_again_moves_the_timer() -> None:
    with bench() as b:
        b.put("k", [["set", "t", 100]], timestamp=1)
        b.put("k", [["set", "t", 500]], timestamp=1)
        b.advance_watermark(499)
        assert fired == []
        b.put("k", [["set", "t", 600], ["set", "t", 550]], timestamp=1)
        b.advance_watermark(1000)
        assert fired == [("k", "t", 550)]


def test_a_timer_can_move_to_the_other_kind_of_time() -> None:
    with bench() as b:
        b.put("k", [["set", "t", 100]], timestamp=1)
        b.put("k", [["set", "t", 5000, "processing"]], timestamp=1)
        b.advance_watermark(1000)
        assert fired == []
        b.restart()
        b.advance(seconds=5)
        assert fired == [("k", "t", 5000)]


def test_a_cancelled_timer_does_not_fire() -> None:
    with bench() as b:
        b.put("k", [["set", "t", 100], ["set", "u", 100]], timestamp=1)
        b.put("k", [["cancel", "t"], ["cancel", "t"], ["cancel", "unknown"]], timestamp=1)
        assert b.outputs(b.out) == [True, False, False]
        b.advance_watermark(1000)
        assert fired == [("k", "u", 100)]


def test_a_timer_set_and_cancelled_at_once_leaves_no_entry() -> None:
    with bench() as b:
        b.put("k", [["set", "t", 100], ["cancel", "t"]], timestamp=1)
        b.advance_watermark(1000)
        assert fired == []
        assert b.timers(b.service, "k") == []


def test_a_timer_in_the_past_fires_immediately() -> None:
    with bench() as b:
        b.put("x", [], timestamp=1000)
        b.put("k", [["set", "t", 500], ["set", "u", -5, "processing"]], timestamp=2000)
        assert fired == [("k", "t", 500), ("k", "u", -5)]
        b.put("k", [["wait", "g"], ["set", "t", 500]], timestamp=2000, settle=False)
        b.settle(wait=False)
        b.call(gates["g"].set)
        b.settle()
        assert fired[2:] == [("k", "t", 500)]


def test_a_timer_fires_before_the_next_record_is_handled() -> None:
    async def note(ctx: Context, event: Any) -> None:
        fired.append(("record", event))
        ctx.timers.at(event * 10, name="t")

    async def noted(ctx: Context, timer: Timer) -> None:
        fired.append(("timer", timer.at))

    with Bench(note, timers={"t": noted}, topic={"watermark": Monotonic()}, now=0) as b:
        for event in (1, 2, 3):
            b.put(f"k{event}", event, timestamp=event * 10, settle=False)
        b.settle()
        b.advance_watermark(1000)
        expected = [("record", 1), ("record", 2), ("timer", 10), ("record", 3), ("timer", 20), ("timer", 30)]
        assert fired == expected


def test_the_timers_of_a_key_can_be_listed() -> None:
    with bench() as b:
        b.put("k", [["set", "b", 100], ["set", "a", 200, "processing"]], timestamp=1)
        b.restart()
        b.put("k", [["set", "c", 300], ["cancel", "b"], ["list"], ["get", "a"], ["get", "b"]], timestamp=1)
        expected = [True, [["a", 200, "processing"], ["c", 300, "event"]], 200, None]
        assert b.outputs(b.out) == expected
        assert [(timer.name, timer.at, timer.time) for timer in b.timers(b.service, "k")] == [
            ("a", 200, "processing"),
            ("c", 300, "event"),
        ]
        b.put("other", [["list"]], timestamp=1)
        assert b.outputs(b.out) == [[]]


def test_times_may_be_datetimes_and_spans_timedeltas() -> None:
    async def set_both(ctx: Context, event: Any) -> None:
        ctx.timers.at(datetime(2026, 1, 1, tzinfo=UTC), name="at")
        ctx.timers.after(timedelta(minutes=1), name="after")

    with Bench(set_both, timers={None: on_timer_only}, now=0) as b:
        b.put("k", timestamp=5)
        assert [timer.at for timer in b.timers(b.service, "k")] == [60_005, 1_767_225_600_000]


async def on_timer_only(ctx: Context, timer: Timer) -> None:
    fired.append((ctx.key, timer.name, timer.at))


@pytest.mark.parametrize("when", [datetime(2026, 1, 1), 1 << 63, -(1 << 63), MAX_TIME + 1, MIN_TIME - 1, nan, inf])
def test_an_impossible_time_is_refused_where_it_is_set(when: Any) -> None:
    refused: list[str] = []

    async def impossible(ctx: Context, event: Any) -> None:
        with pytest.raises(UsageError) as error:
            ctx.timers.at(when, name="t")
        refused.append(str(error.value))

    with Bench(impossible, timers={None: on_timer_only}) as b:
        b.put("k")
        assert len(refused) == 1


NOW = 1_700_000_000_000


@pytest.mark.parametrize("domain", ["event", "processing"])
@pytest.mark.parametrize("when", [NOW / 1000, NOW / 1000 + 0.25, NOW // 1000, NOW // 1000 + 3600])
def test_seconds_are_refused_where_milliseconds_are_meant(when: Any, domain: Any) -> None:
    """Before, such a timer was one of January 1970, and fired at once."""

    async def mistaken(ctx: Context, event: Any) -> None:
        ctx.timers.at(when, name="t", time=domain)

    with (
        Bench(mistaken, timers={None: on_timer_only}, now=NOW) as b,
        pytest.raises(ServiceFailedError, match="milliseconds"),
    ):
        b.put("k", timestamp=NOW)


@pytest.mark.parametrize("when", [0, 1, 1000, 86_400_000, NOW // 1000, 30 * 86_400_000, 1.5 * 3_600_000, NOW + 0.5])
def test_a_time_that_begins_at_0_may_be_any_number(when: Any) -> None:
    async def set_it(ctx: Context, event: Any) -> None:
        ctx.timers.at(when, name="t")

    with Bench(set_it, timers={None: on_timer_only}, now=NOW) as b:
        b.put("k", timestamp=5)
        assert [timer.at for timer in b.timers(b.service, "k")] == [int(when)]


@pytest.mark.parametrize("domain", ["event", "processing"])
@pytest.mark.parametrize("when", [0, 1, 1000, NOW - 86_400_000])
def test_a_time_long_past_is_no_mistake(when: Any, domain: Any) -> None:
    async def set_it(ctx: Context, event: Any) -> None:
        ctx.timers.at(when, name="t", time=domain)

    with Bench(set_it, timers={None: on_timer_only}, topic={"watermark": Monotonic(idle_after=None)}, now=NOW) as b:
        b.put("k", timestamp=NOW)
        assert [timer.at for timer in b.timers(b.service, "k")] == ([when] if domain == "event" and not fired else [])


@pytest.mark.parametrize("method", ["at", "after"])
def test_a_kind_of_time_that_there_is_not_is_refused_where_it_is_set(method: str) -> None:
    async def impossible(ctx: Context, event: Any) -> None:
        getattr(ctx.timers, method)(1, name="t", time="clock")

    with Bench(impossible, timers={None: on_timer_only}) as b, pytest.raises(ServiceFailedError, match="'processing'"):
        b.put("k")


# -- names -------------------------------------------------------------------------------------------------------------


async def named(ctx: Context, timer: Timer) -> None:
    fired.append(("named", timer.name))


async def the_rest(ctx: Context, timer: Timer) -> None:
    fired.append(("rest", timer.name))


def test_a_timer_goes_to_its_named_handler_or_the_default_handler() -> None:
    with Bench(obey, timers={"one": named, None: the_rest}) as b:
        b.put("k", [["set", "one", 1], ["set", "two", 2], ["set", "", 3], ["set", "drei ü", 4]], timestamp=0)
        b.finish()
        assert fired == [("named", "one"), ("rest", "two"), ("rest", ""), ("rest", "drei ü")]


def test_a_timer_without_a_handler_is_refused_when_set() -> None:
    with Bench(obey, timers={"one": named}) as b, pytest.raises(ServiceFailedError, match=r"on_timer\('two'\)"):
        b.put("k", [["set", "two", 1]])


def test_a_handler_need_not_take_the_timer() -> None:
    async def bare(ctx: Context, kept: ValueState[int | None]) -> None:
        kept.value = 7

    with Bench(obey, timers={"t": bare}) as b:
        b.put("k", [["set", "t", 1]], timestamp=0)
        b.finish()
        assert b.value("kept", "k") == 7


class Reminder(ProcessFunction[Any, Any]):
    names: MapState[str, int]

    async def process(self, ctx: Context, event: Any) -> None:
        self.names[event] = 0
        ctx.timers.after(1, name=event)

    async def on_timer(self, ctx: Context, timer: Timer) -> None:
        self.names[timer.name] += 1


def test_a_class_handles_all_its_timers_in_one_method() -> None:
    with Bench(Reminder) as b:
        b.put("k", "a")
        b.put("k", "b")
        b.finish()
        assert b.value("names", "k") == {"a": 1, "b": 1}


# -- handlers of timers ------------------------------------------------------------------------------------------------


def test_a_timers_handler_may_set_it_again() -> None:
    async def three_times(ctx: Context, timer: Timer) -> None:
        fired.append((timer.at,))
        if len(fired) < 3:
            ctx.timers.at(timer.at + 10, name="t")

    with Bench(obey, timers={"t": three_times}) as b:
        b.put("k", [["set", "t", 10]], timestamp=0)
        b.advance_watermark(1000)
        assert fired == [(10,), (20,), (30,)]
        b.restart()
        b.finish()
        assert len(fired) == 3


def test_a_timers_handler_may_cancel_others() -> None:
    async def first_wins(ctx: Context, timer: Timer) -> None:
        fired.append((timer.name,))
        for other in list(ctx.timers):
            ctx.timers.cancel(other.name)

    with Bench(obey, timers={None: first_wins}) as b:
        b.put("k", [["set", "a", 10], ["set", "b", 10], ["set", "c", 20]], timestamp=0)
        b.advance_watermark(1000)
        assert fired == [("a",)]


def test_a_timer_of_a_busy_key_waits_for_its_turn() -> None:
    with bench() as b:
        b.put("k", [["set", "t", 100]], timestamp=1)
        b.put_quietly("k", [["wait", "g"]], timestamp=2)
        b.put_quietly("other", [["set", "t", 100]], timestamp=2)
        b.put_quietly("k", [["list"]], timestamp=3)
        b.engine.advance_watermark(1000)
        b.settle(wait=False)
        assert fired == []  # time itself waits for records that came before
        b.call(gates["g"].set)
        b.settle()
        assert sorted(fired) == [("k", "t", 100), ("other", "t", 100)]
        assert b.outputs(b.out) == [[["t", 100, "event"]]]


def test_a_processing_time_timer_waits_for_a_busy_key() -> None:
    with bench() as b:
        b.put("k", [["after", "t", 10, "processing"]], timestamp=1)
        b.put_quietly("k", [["wait", "g"]], timestamp=2)
        b.put("other", [["after", "t", 10, "processing"]], settle=False, timestamp=2)
        b.settle(wait=False)
        b.clock.advance(20)
        b.settle(wait=False)
        b.settle(wait=False)
        assert fired == [("other", "t", 10_000)]
        b.call(gates["g"].set)
        b.settle()
        assert fired == [("other", "t", 10_000), ("k", "t", 10_000)]


def test_a_suspended_handlers_timer_changes_apply_when_it_finishes() -> None:
    with bench() as b:
        b.put("k", [["set", "moved", 100], ["set", "cancelled", 100]], timestamp=1)
        event = [
            ["set", "moved", 900],
            ["set", "early", 50],
            ["wait", "g"],
            ["cancel", "cancelled"],
            ["set", "late", 60],
        ]
        b.put_quietly("k", event, timestamp=2)
        assert [timer.at for timer in b.timers(b.service, "k")] == [100, 100]
        b.call(gates["g"].set)
        b.settle()
        b.advance_watermark(500)
        assert fired == [("k", "early", 50), ("k", "late", 60)]
        b.advance_watermark(1000)
        assert fired[2:] == [("k", "moved", 900)]


@pytest.mark.parametrize("wait", [[], [["wait", "g"]]], ids=["direct", "suspended"])
def test_a_failed_handlers_timer_changes_are_rolled_back(wait: Any) -> None:
    with bench(service={"errors": SKIP}) as b:
        b.put("k", [["set", "kept", 100], ["set", "moved", 200]], timestamp=1)
        event = [["cancel", "kept"], ["set", "moved", 900], ["set", "new", 50], *wait, ["set", "newer", 60], ["fail"]]
        b.put_quietly("k", event, timestamp=2)
        if wait:
            b.call(gates["g"].set)
        b.settle()
        b.advance_watermark(500)
        assert fired == [("k", "kept", 100), ("k", "moved", 200)]


def test_a_suspended_handlers_timer_is_found_after_a_cache_eviction() -> None:
    with bench(cache_entries=1000) as b:
        b.put_quietly("k", [["set", "t", 100], ["wait", "g"]], timestamp=1)
        for turn in range(3):
            events = [(f"x{turn}-{number}", [["set", "t", 10**9]]) for number in range(3000)]
            b.put_all(events, timestamp=1, settle=False)
            b.settle(wait=False)
        b.call(gates["g"].set)
        b.settle()
        b.advance_watermark(1000)
        assert fired == [("k", "t", 100)]


# -- surviving ---------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["memory", "rocksdb"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Bench]:
    """Benches with each kind of store."""
    directory = tmp_path if request.param == "rocksdb" else None
    return lambda **options: bench(directory=directory, **options)


def test_timers_survive_restarts(make: Callable[..., Bench]) -> None:
    with make() as b:
        b.put("a", [["set", "t", 100], ["set", "u", 5000, "processing"]], timestamp=1)
        b.put("b", [["set", "t", 200]], timestamp=1)
        b.put("b", [["set", "t", 300]], timestamp=1)
        b.put("c", [["set", "t", 100]], timestamp=1)
        b.put("c", [["cancel", "t"]], timestamp=1)
        b.crash()
        assert fired == []
        b.advance_watermark(250)
        b.restart()
        b.advance(seconds=5)
        b.crash()
        b.advance_watermark(1000)
        b.restart()
        assert fired == [("a", "t", 100), ("a", "u", 5000), ("b", "t", 300)]


def test_an_uncommitted_timer_fires_again_and_takes_effect_once(make: Callable[..., Bench]) -> None:
    with make() as b:
        b.put("k", [["set", "t", 100]], timestamp=1)
        b.engine.advance_watermark(1000)
        b.settle(commit=False)
        assert len(fired) == 1
        b.crash()
        b.advance_watermark(1000)
        assert len(fired) == 2
        assert b.value("count", "k") == 1


def test_a_timer_that_became_due_during_downtime_fires_at_the_start(make: Callable[..., Bench]) -> None:
    with make() as b:
        b.put("k", [["after", "t", 60, "processing"]])
        b.run(b.engine.close_tasks(commit=True))
        b.clock.advance(3600)
        b.run(b._open())
        b.settle()
        assert fired == [("k", "t", 60_000)]


def test_moved_and_cancelled_timers_leave_no_entries_to_scan(make: Callable[..., Bench]) -> None:
    with make() as b:
        for turn in range(20):
            b.put("k", [["set", "t", 1000 + turn], ["set", f"u{turn}", 5000]], timestamp=1)
            b.put("k", [["cancel", f"u{turn}"]], timestamp=1)
        b.crash()
        b.advance_watermark(500)
        (task,) = b.engine.tasks.values()
        queued = [key for key, _ in task.store.scan(b"\x04", b"\x05")]
        assert len(queued) == 1


class CountingStore(MemoryStore):
    """Counts what is read."""

    reads = 0

    def get(self, key: bytes) -> bytes | None:
        CountingStore.reads += 1
        return super().get(key)

    def scan(self, start: bytes, end: bytes, *, reverse: bool = False) -> Any:
        for pair in super().scan(start, end, reverse=reverse):
            CountingStore.reads += 1
            yield pair


def test_opening_a_task_does_not_look_at_its_pending_timers(monkeypatch: pytest.MonkeyPatch) -> None:
    with bench() as b:
        b.put_all(((str(number), [["set", "t", 10**9 + number]]) for number in range(100_000)), timestamp=1)
        stores = [task.store for task in b.engine.tasks.values()]
        assert isinstance(stores[0], MemoryStore)
        stores[0].__class__ = CountingStore
        monkeypatch.setattr(b.engine.stores, "open", lambda *_, **__: stores[0])
        engine = b.engine
        b.run(engine.close_tasks(commit=True))
        CountingStore.reads = 0
        b.run(engine.open_tasks())
        b.settle()
        b.put("k", [["set", "t", 5]], timestamp=2)
        b.advance_watermark(100)
        assert fired == [("k", "t", 5)]
        assert CountingStore.reads < 50
        b.advance_watermark(10**9 + 2)
        assert len(fired) == 4
        assert CountingStore.reads < 100
