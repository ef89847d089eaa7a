"""Plain handlers in threads: state stays safe, keys stay in order, and what outlives its time is discarded."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support import Bench, Mean
from tidegate import (
    DEAD_LETTER,
    SKIP,
    TTL,
    Aggregate,
    AggregatingState,
    App,
    Context,
    Default,
    EventTime,
    ListState,
    MapState,
    OperatorState,
    ProcessFunction,
    Reduce,
    ReducingState,
    TaskInfo,
    Timer,
    ValueState,
    retry,
)
from tidegate.errors import DefinitionError, HandlerOverError, InsideHandlerError
from tidegate.state.cells import ListCells, MapCells, ValueCells
from tidegate.state.memory import MemoryStore
from tidegate.testing import AppHarness

THREADS = {"threads": 8}
START = 1_700_000_000_000


class Ping(msgspec.Struct, frozen=True):
    text: str


class Barrier:
    """Handlers wait here until the test releases them, or for some seconds."""

    def __init__(self) -> None:
        self.reached, self.go = threading.Semaphore(0), threading.Event()

    def wait(self) -> None:
        self.reached.release()
        assert self.go.wait(20)


@pytest.fixture
def barrier() -> Iterator[Barrier]:
    made = Barrier()
    yield made
    made.go.set()


# -- overlap and order -----------------------------------------------------------------------------------------------
def test_handlers_of_different_keys_overlap_in_threads() -> None:
    together = threading.Barrier(4, timeout=20)

    def handle(ctx: Context, event: int) -> None:
        together.wait()
        ctx.emit([ctx.key, threading.current_thread() is not threading.main_thread()])

    with Bench(handle, service={"threads": 4}) as bench:
        bench.put_all((key, 0) for key in "abcd")
        assert sorted(bench.outputs(bench.out)) == [[key, True] for key in "abcd"]


def test_no_more_handlers_run_than_there_are_threads_for_all_tasks() -> None:
    running, most, lock = 0, 0, threading.Lock()

    def handle(ctx: Context, event: int) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.002)
        with lock:
            running -= 1

    with Bench(handle, service={"threads": 3}, partitions=4) as bench:
        bench.put_all((str(number), 0) for number in range(60))
        assert 2 <= most <= 3


def test_each_key_is_handled_in_order() -> None:
    seen: dict[str, list[int]] = {}

    def handle(ctx: Context, event: int, total: Annotated[ValueState[int], Default(0)]) -> None:
        time.sleep(random.random() / 500)
        seen.setdefault(ctx.key, []).append(event)
        total.value += event
        ctx.emit([ctx.key, event])

    with Bench(handle, service=THREADS, partitions=2) as bench:
        bench.put_all((f"k{number % 7}", number) for number in range(210))
        expected = {f"k{key}": list(range(key, 210, 7)) for key in range(7)}
        assert seen == expected
        assert {key: bench.value("total", key) for key in expected} == {k: sum(v) for k, v in expected.items()}
        emitted: dict[str, list[int]] = {}
        for key, event in bench.outputs(bench.out):
            emitted.setdefault(key, []).append(event)
        assert emitted == expected


# -- state -----------------------------------------------------------------------------------------------------------
Kept = Annotated[ValueState[int | None], TTL(milliseconds=40, time="event")]
Log = Annotated[ValueState[list[int]], Default(factory=list)]


class Plain(ProcessFunction[Any, Any]):
    """Does what each event says, on every kind of state."""

    total: Annotated[ValueState[int], Default(0)]
    log: Log
    kept: Kept
    names: MapState[str, list[int]]
    items: ListState[int]
    highest: Annotated[ReducingState[int], Reduce(max)]
    mean: Annotated[AggregatingState[float, float], Aggregate(Mean())]
    shared: OperatorState[int]
    naps = False

    def process(self, ctx: Context, event: Any) -> None:
        for number, (verb, value) in enumerate(event["do"]):
            if self.naps and number == 1:
                time.sleep(0.0005)
            self.act(ctx, verb, value)
        ctx.emit([ctx.key, event["at"] - START, self.total.value, len(self.items), sorted(self.names)])

    def act(self, ctx: Context, verb: str, value: int) -> None:
        match verb:
            case "add":
                self.total.value += value
            case "log":
                self.log.value.append(value)
            case "keep":
                self.kept.value = (self.kept.value or 0) + value
            case "name":
                self.names.setdefault(str(value), []).append(value)
            case "forget":
                self.names.pop(str(value), None)
            case "names":
                self.total.value += sum(len(found) for found in self.names.values())
            case "range":
                found = self.names.range(str(value), reverse=value % 2 == 0)
                self.total.value += sum(len(numbers) for _, numbers in found)
            case "push":
                self.items.append(value)
            case "pop":
                self.total.value += self.items.popleft() if self.items else 0
            case "max":
                self.highest.add(value)
            case "mean":
                self.mean.add(value)
            case "timer":
                ctx.timers.after(value / 1000, name="ring")
            case "cancel":
                ctx.timers.cancel("ring")
            case "fail":
                raise ValueError("on purpose")

    def on_timer(self, ctx: Context, timer: Timer) -> None:
        self.total.value += 1000
        ctx.emit([ctx.key, timer.at - START, "ring", self.total.value])


class Napping(Plain):
    naps = True


VERBS = [
    "add", "log", "keep", "name", "forget", "names", "range", "push", "pop", "max", "mean", "timer", "cancel", "fail",
]  # fmt: skip
STATES = ["total", "log", "kept", "names", "items", "highest", "mean"]


def outcome(handler: Any, events: list[tuple[str, Any]], seed: int, **service: Any) -> Any:
    """States and outputs per key, after crashes and commits at random."""
    rng = random.Random(seed)
    with Bench(handler, service={"errors": SKIP, **service}, topic={"time": EventTime("at")}, partitions=2) as bench:
        rest = events
        while rest:
            count = rng.choice((1, 5, 40))
            bench.put_all(rest[:count], settle=False)
            rest = rest[count:]
            match rng.randrange(4):
                case 0:
                    bench.restart()
                case 1:
                    bench.crash()
                case _:
                    bench.settle()
        bench.finish()
        keys = sorted({key for key, _ in events})
        states = {name: [bench.value(name, key) for key in keys] for name in STATES}
        emitted: dict[str, list[Any]] = {}
        for key, *rest_of in bench.outputs(bench.out):
            emitted.setdefault(key, []).append(rest_of)
        return states, emitted


actions = st.lists(st.tuples(st.sampled_from(VERBS), st.integers(0, 20)), max_size=5)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(events=st.lists(st.tuples(st.sampled_from("abcde"), actions), min_size=1, max_size=60), seed=st.integers(0, 999))
def test_handlers_in_threads_have_the_same_effects_as_in_the_event_loop(
    events: list[tuple[str, Any]], seed: int
) -> None:
    sent = [(key, {"at": START + 10 * number, "do": do}) for number, (key, do) in enumerate(events)]
    assert outcome(Napping, sent, seed, threads=6) == outcome(Plain, sent, seed)


def test_only_the_event_loop_touches_shared_state(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[str] = set()

    def watch(owner: type, name: str) -> None:
        original = getattr(owner, name)

        def watched(self: Any, *arguments: Any, **options: Any) -> Any:
            if type(self) is owner:
                seen.add(threading.current_thread().name)
            return original(self, *arguments, **options)

        monkeypatch.setattr(owner, name, watched)

    for cells in (ValueCells, MapCells, ListCells):
        watch(cells, "entry")
    for method in ("get", "scan"):
        watch(MemoryStore, method)
    verbs = [[verb, number] for number, verb in enumerate(VERBS) if verb != "fail"]
    with Bench(Napping, service=THREADS, topic={"time": EventTime("at")}) as bench:
        for _ in range(3):
            bench.put_all((key, {"at": START, "do": verbs}) for key in "abcdef" * 3)
            bench.restart()
        assert len(bench.outputs(bench.out)) >= 54
    assert seen == {threading.main_thread().name}


def test_a_large_map_is_read_in_a_thread_during_commits(tmp_path: Any) -> None:
    def handle(ctx: Context, event: int, names: MapState[str, int], items: ListState[int]) -> None:
        if event < 0:
            time.sleep(0.001)
            ctx.emit([len(names), sum(names.values()), len(items), sum(items)])
        else:
            for number in range(event):
                names[f"{number:05}"] = number
                items.append(number)

    with Bench(handle, service=THREADS, directory=tmp_path) as bench:
        bench.put_all([("a", 1000), ("b", 700)])
        bench.restart()
        bench.put_all([(key, -1) for key in "ab" * 3])
        expected = [[count, sum(range(count))] * 2 for count in (700, 1000) for _ in range(3)]
        assert sorted(bench.outputs(bench.out)) == sorted(expected)


def test_many_keys_are_cached_and_evicted_while_threads_read(tmp_path: Any) -> None:
    def handle(ctx: Context, event: int, total: Annotated[ValueState[int], Default(0)], log: Log) -> None:
        total.value += event
        log.value.append(event)
        if event % 5 == 0:
            time.sleep(0.0002)

    with Bench(handle, service=THREADS, directory=tmp_path, app={"cache_entries": 1000}) as bench:
        for round_ in range(1, 4):
            bench.put_all((f"k{number}", round_) for number in range(600))
        assert [bench.value("total", f"k{number}") for number in range(600)] == [6] * 600
        assert [bench.value("log", f"k{number}") for number in range(600)] == [[1, 2, 3]] * 600


# -- timers and messages ---------------------------------------------------------------------------------------------
def test_timers_and_messages_run_in_threads() -> None:
    app = App("threaded")
    actor = app.actor("actor", threads=2)
    out: list[str] = []

    @actor.on(Ping)
    def ping(ctx: Context, message: Ping, texts: Annotated[ValueState[str], Default("")]) -> None:
        texts.value += message.text
        ctx.reply(texts.value)
        ctx.timers.after(5, name="later", time="processing")
        out.append(threading.current_thread().name)

    @actor.on_timer("later")
    def later(ctx: Context, texts: ValueState[str]) -> None:
        out.append(threading.current_thread().name)
        texts.clear()

    with AppHarness(app) as harness:
        assert harness.ask(actor, "a", Ping("x"), idempotency_key="1") == "x"
        assert harness.ask(actor, "a", Ping("x"), idempotency_key="1") == "x"
        assert harness.ask(actor, "a", Ping("y")) == "xy"
        harness.advance(seconds=6)
        assert harness.state(actor, "texts", "a") is None
    assert len(out) == 3
    assert all(name.startswith("actor-") for name in out)


def test_tombstones_reach_handlers_in_threads() -> None:
    app = App("deleting")
    events = app.topic("events", value_type=int, compact=True, time=EventTime())
    out = app.topic("out", value_type=str)

    @app.process(events, to=out, threads=2)
    def service(ctx: Context, event: int | None, total: Annotated[ValueState[int], Default(0)]) -> None:
        total.value += event or 0
        ctx.emit(f"{event} {total.value}")

    with AppHarness(app) as harness:
        harness.send(events, 3, key="k")
        harness.send(events, None, key="k")
        assert harness.outputs(out) == ["3 3", "None 3"]


def test_hooks_that_block_get_a_thread() -> None:
    seen: list[tuple[str, bool]] = []

    class Service(ProcessFunction[Any, Any]):
        def open(self, task: TaskInfo) -> None:
            seen.append(("open", threading.current_thread() is threading.main_thread()))
            self.step = 3

        async def close(self) -> None:
            seen.append(("close", threading.current_thread() is threading.main_thread()))

        def process(self, ctx: Context, event: int) -> None:
            ctx.emit(event + self.step)

    with Bench(Service, service=THREADS) as bench:
        bench.put("k", 1)
        assert bench.outputs(bench.out) == [4]
    assert seen == [("open", False), ("close", True)]


# -- failures --------------------------------------------------------------------------------------------------------
def test_failures_go_by_the_error_policy() -> None:
    attempts: list[int] = []

    def handle(ctx: Context, event: int, total: Annotated[ValueState[int], Default(0)]) -> None:
        total.value += event
        ctx.emit(event)
        attempts.append(event)
        if event == 2 or (event == 3 and attempts.count(3) < 3):
            raise SystemExit(1) if event == 2 else ValueError("not yet")

    with Bench(handle, service={"errors": retry(3, backoff=0.001, then=DEAD_LETTER), **THREADS}) as bench:
        bench.put_all([("k", 1), ("k", 2), ("k", 3)])
        for _ in range(6):
            bench.advance(seconds=1)
        assert bench.outputs(bench.out) == [1, 3]
        assert bench.value("total", "k") == 4
        assert [letter.error_type for letter in bench.dead_letters(bench.service)] == ["SystemExit"]


def test_a_timed_out_handler_is_discarded_and_its_key_continues(
    barrier: Barrier, caplog: pytest.LogCaptureFixture
) -> None:
    errors: list[BaseException] = []
    done = threading.Event()

    def handle(
        ctx: Context, event: int, total: Annotated[ValueState[int], Default(0)], names: MapState[str, int]
    ) -> None:
        total.value += event
        ctx.emit(event)
        if event == 2:
            barrier.wait()
            attempts: list[Callable[[], object]] = [
                lambda: ctx.emit(99), lambda: names.get("x"), lambda: ctx.timers.cancel("t")
            ]  # fmt: skip
            for late in attempts:
                try:
                    late()
                except HandlerOverError as error:
                    errors.append(error)
            done.set()

    with Bench(handle, service={"errors": SKIP, "timeout": 0.05, **THREADS}) as bench:
        bench.put_all([("k", 1), ("k", 2), ("k", 3), ("other", 4)])
        assert sorted(bench.outputs(bench.out)) == [1, 3, 4]
        assert bench.value("total", "k") == 4
        assert "did not return within 0.05 s. Its thread cannot be stopped" in caplog.text
        barrier.go.set()
        assert done.wait(20)
        bench.put("k", 5)
        assert bench.value("total", "k") == 9
        assert len(errors) == 3
    assert "its result is discarded" in caplog.text


def test_hanging_handlers_occupy_their_threads_without_losing_records(barrier: Barrier) -> None:
    def handle(ctx: Context, event: int) -> None:
        if event < 2:
            barrier.wait()
        ctx.emit(event)

    with Bench(handle, service={"errors": SKIP, "timeout": 0.02, "threads": 2}) as bench:
        bench.put_all([(str(number), number) for number in range(4)], settle=False)
        bench.settle(wait=False)
        assert barrier.reached.acquire(timeout=20)
        assert barrier.reached.acquire(timeout=20)
        threading.Timer(0.3, barrier.go.set).start()
        bench.settle()
        assert sorted(bench.outputs(bench.out)) == [2, 3]


def test_a_handler_waiting_for_a_thread_does_not_time_out() -> None:
    def handle(ctx: Context, event: int) -> None:
        time.sleep(0.06)
        ctx.emit(event)

    with Bench(handle, service={"timeout": 0.3, "threads": 1}, partitions=4) as bench:
        bench.put_all([(str(number), number) for number in range(12)])
        assert sorted(bench.outputs(bench.out)) == list(range(12))


def test_a_crash_discards_handlers_in_threads_and_they_are_repeated(barrier: Barrier) -> None:
    calls: list[int] = []

    def handle(ctx: Context, event: int, total: Annotated[ValueState[int], Default(0)]) -> None:
        calls.append(event)
        total.value += event
        if calls.count(event) == 1:
            barrier.wait()
        ctx.emit(event)

    with Bench(handle, service=THREADS) as bench:
        bench.put_quietly("k", 7)
        assert barrier.reached.acquire(timeout=20)
        threading.Timer(0.1, barrier.go.set).start()
        bench.crash()
        bench.settle()
        assert bench.outputs(bench.out) == [7]
        assert bench.value("total", "k") == 7
        assert calls == [7, 7]


def test_a_close_waits_for_a_bounded_time(
    barrier: Barrier, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.engine.processing.invocation._GRACE_SECONDS", 0.05)

    def handle(ctx: Context, event: int) -> None:
        barrier.wait()

    started = time.monotonic()
    with Bench(handle, service=THREADS) as bench:
        bench.put_quietly("k", 7)
        assert barrier.reached.acquire(timeout=20)
    assert time.monotonic() - started < 10
    assert "1 handlers still run in threads 0.05 s after their task has closed" in caplog.text


def test_the_threads_end_with_the_tasks() -> None:
    def handle(ctx: Context, event: int) -> None:
        ctx.emit(threading.current_thread().name)

    with Bench(handle, service={"threads": 3}, partitions=2) as bench:
        bench.put_all((str(number), number) for number in range(9))
        assert {name.rsplit("-", 1)[0] for name in bench.outputs(bench.out)} == {"service"}
    deadline = time.monotonic() + 20
    while any(thread.name.startswith("service-") for thread in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


# -- mistakes --------------------------------------------------------------------------------------------------------
def test_past_its_context_a_handler_in_a_thread_sends_nothing() -> None:
    app = App("inside")
    events = app.topic("events", value_type=int)
    failed: list[BaseException] = []

    @app.process(events, threads=1, errors=SKIP)
    def service(ctx: Context, event: int) -> None:
        try:
            events.send(1).send(None)
        except InsideHandlerError as error:
            failed.append(error)
            raise

    with AppHarness(app) as harness:
        harness.send(events, 1, key="k")
        assert len(failed) == 1


async def awaiting(ctx: Context, event: Any) -> None: ...


async def async_timer(ctx: Context, timer: Timer) -> None: ...


def blocking(ctx: Context, event: Any) -> None: ...


def test_async_handlers_are_refused() -> None:
    class Service(ProcessFunction[Any, Any]):
        async def process(self, ctx: Context, event: Any) -> None: ...

    with pytest.raises(DefinitionError, match=r"threads=2 runs plain functions.*awaiting is an 'async def'"):
        Bench(awaiting, service={"threads": 2})
    with pytest.raises(DefinitionError, match="process is an 'async def'"):
        Bench(Service, service={"threads": 2})
    with pytest.raises(DefinitionError, match="async_timer is an 'async def'"):
        Bench(blocking, timers={"t": async_timer}, service={"threads": 2})
    with pytest.raises(DefinitionError, match="awaiting is an 'async def'"):
        App("a").actor("actor", threads=1).on(Ping)(awaiting)


def test_there_is_at_least_one_thread() -> None:
    with pytest.raises(DefinitionError, match="threads must be at least 1, not 0"):
        Bench(blocking, service={"threads": 0})
