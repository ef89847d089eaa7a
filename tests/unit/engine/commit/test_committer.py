"""A commit: positions, state, timers and outputs change in one transaction, which the commit marker describes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Annotated, Any

import pytest

from tests.support import Bench
from tidegate import App, Context, Default, Monotonic, Timer, ValueState
from tidegate.engine.formats.commit_marker import InputMark
from tidegate.engine.task import TaskState
from tidegate.errors import FencedError
from tidegate.logs.base import TopicPartition
from tidegate.state.layout import MARKER
from tidegate.state.memory import MemoryStore
from tidegate.testing import POINTS, AppHarness, InjectedFault, arm, disarm, parse

gate: list[asyncio.Event] = []


@pytest.fixture(autouse=True)
def _no_faults() -> Iterator[None]:
    disarm()
    gate.clear()
    yield
    disarm()


async def count(ctx: Context, event: Any, total: Annotated[ValueState[int], Default(0)]) -> None:
    total.value += 1
    ctx.emit(total.value)
    ctx.timers.after(60, name="t")
    if event == "wait":
        gate.append(asyncio.Event())
        await gate[-1].wait()


async def on_timer(ctx: Context, timer: Timer, total: Annotated[ValueState[int], Default(0)]) -> None:
    ctx.emit(-total.value)
    total.value += 100


def bench(**options: Any) -> Bench:
    return Bench(count, timers={"t": on_timer}, topic={"watermark": Monotonic(idle_after=None)}, **options)


def test_effects_become_visible_with_the_commit() -> None:
    with bench() as b:
        b.put("k", timestamp=1000, settle=False)
        b.settle(commit=False)
        assert (b.outputs(b.out), b.value("total", "k"), b.timers(b.service, "k")) == ([], None, [])
        assert b.marker.inputs["events:0"].position == 0
        b.settle()
        assert (b.outputs(b.out), b.value("total", "k"), len(b.timers(b.service, "k"))) == ([1], 1, 1)
        assert b.marker.inputs["events:0"].position > 0


def test_uncommitted_records_are_handled_again_with_the_same_result() -> None:
    with bench() as b:
        b.put("k")
        for _ in range(3):
            b.put("k", settle=False)
            b.settle(commit=False)
            b.crash()
        assert b.outputs(b.out) == [1, 2, 3, 4]
        assert b.value("total", "k") == 4


def test_the_marker_contains_positions_unfinished_records_and_the_watermark() -> None:
    with bench() as b:
        b.put_quietly("a", timestamp=1000)
        b.put_quietly("b", "wait", timestamp=2000)
        b.put_quietly("c", timestamp=3000)
        b.put_quietly("b", timestamp=4000)
        marker = b.marker
        assert marker.inputs == {"events:0": InputMark(position=8, unfinished=[2, 6])}
        assert marker.inputs["events:0"].resume_at == 2
        assert marker.watermark == 999
        assert marker.channels["events:0"].watermark == 3999
        assert (marker.run, marker.epoch) == ("1", 0)
        assert len(marker.lineage) == 32


def test_the_marker_is_the_last_record_of_each_commit() -> None:
    with bench() as b:
        for key in "abc":
            b.put(key)
        keys = [record.key for record in b.changelog]
        assert keys[-1] == MARKER
        assert keys.count(MARKER) == 4  # one when the task opened


def test_a_new_life_keeps_the_lineage() -> None:
    with bench() as b:
        lineage = b.marker.lineage
        b.restart()
        assert b.marker.lineage == lineage


def test_an_idle_task_commits_nothing() -> None:
    with bench() as b:
        b.put("k")
        before = len(b.changelog)
        b.advance(seconds=10)
        b.settle()
        assert len(b.changelog) == before


def test_a_task_commits_early_when_it_holds_many_changes() -> None:
    with bench(commit_changes=10) as b:
        b.put_all([(str(number), 0) for number in range(50)], settle=False)
        b.run(b.engine.read_once())
        (task,) = b.engine.tasks.values()
        while task.ready:
            b.run(b.engine.work_once())
        b.run(asyncio.sleep(0))
        assert b.outputs(b.out)  # although the clock stands still


def test_a_commit_is_due_after_its_interval() -> None:
    with bench(commit_interval=0.5) as b:
        b.put("k", settle=False)
        b.run(b.engine.read_once())
        b.run(b.engine.work_once())
        b.run(asyncio.sleep(0))
        assert b.outputs(b.out) == []
        b.clock.advance(0.5)
        b.run(b.engine.work_once())
        b.run(asyncio.sleep(0))
        assert b.outputs(b.out) == [1]


def test_handling_continues_during_a_commit() -> None:
    with bench() as b:
        b.put("k", timestamp=1000, settle=False)
        b.settle(commit=False)
        (task,) = b.engine.tasks.values()
        original = task._committer._writer.append
        log: list[str] = []

        async def slow(*arguments: Any) -> Any:
            log.append("begin")
            await asyncio.sleep(0.01)
            result = await original(*arguments)
            log.append("end")
            return result

        task._committer._writer.append = slow  # type: ignore[assignment,method-assign]

        async def meanwhile() -> None:
            commit = asyncio.ensure_future(task.commit())
            while not log:  # noqa: ASYNC110  a few turns of the loop at most
                await asyncio.sleep(0)
            writer = await b.log.writer()
            await writer.append({TopicPartition("events", 0): [(b"k", b"0", 1000, ())]})
            await b.engine.read_once()
            task.run()
            log.append("handled")
            await commit

        b.run(meanwhile())
        assert log == ["begin", "handled", "end"]
        assert b.value("total", "k") == 1  # the second record belongs to the next commit
        assert b.marker.inputs["events:0"].position == 2
        b.settle()
        assert b.value("total", "k") == 2
        assert b.outputs(b.out) == [1, 2]


COMMIT_POINTS = [point for point in POINTS if point.startswith(("commit.", "handler.", "timer.", "input."))]


@pytest.mark.parametrize("nth", [1, 2, 3])
@pytest.mark.parametrize("point", COMMIT_POINTS)
def test_wherever_it_fails_the_result_is_as_if_it_had_not(point: str, nth: int) -> None:
    struck = 0
    with bench() as b:
        arm(parse(f"{point}:raise@{nth}"))
        for number in range(6):
            b.put(f"k{number % 2}", timestamp=number * 100_000, settle=False)
            try:
                b.settle()
            except InjectedFault:
                struck += 1
                b.crash()
        assert struck == 1
        disarm()
        b.crash()
        outputs: dict[str, list[int]] = {"k0": [], "k1": []}
        for record in b.records(b.out):
            outputs[record.key].append(record.value)
        assert outputs["k0"] == [1, -1, 102, -102, 203, -203]
        assert outputs["k1"] == [1, -1, 102, -102, 203]
        assert [b.value("total", key) for key in ("k0", "k1")] == [303, 203]


def test_a_fenced_task_throws_its_work_away() -> None:
    with bench() as b:
        b.put("k", settle=False)
        b.settle(commit=False)
        b.run(b.log.writer("bench.service.0"))  # another owner
        with pytest.raises(FencedError):
            b.settle()
        (task,) = b.engine.tasks.values()
        assert task.state is TaskState.FAILED
        assert b.outputs(b.out) == []
        b.crash()
        assert b.outputs(b.out) == [1]


def test_all_outputs_of_a_commit_are_one_transaction() -> None:
    app = App("app")
    events, first, second = app.topic("events"), app.topic("first"), app.topic("second", partitions=4)

    @app.process(events, to=[first, second])
    async def service(ctx: Context, event: int) -> None:
        ctx.emit(event)
        ctx.emit(event, to=second, key=str(event))

    seen: list[set[str]] = []
    with AppHarness(app) as harness:
        original = harness.log.append

        def note(records: Any) -> None:
            seen.append({source.topic for source in records})
            original(records)

        harness.log.append = note  # type: ignore[method-assign]
        harness.send_many(events, range(10), key=str)
        assert seen[1:] == [{"first", "second", "app.service.changelog"}]


def test_hooks_run_before_the_first_and_after_the_last_record_of_a_task() -> None:
    log: list[str] = []
    app = App("app")
    events = app.topic("events", partitions=2)

    @app.process(events)
    async def service(ctx: Context, event: Any) -> None:
        log.append("record")

    @service.on_open
    async def opened(task: Any) -> None:
        log.append(f"open {task.number}")

    @service.on_close
    async def closed(task: Any) -> None:
        log.append(f"close {task.number}")

    with AppHarness(app) as harness:
        harness.send(events, 1, key="k")
        assert sorted(log[:2]) == ["open 0", "open 1"]
        assert log[2:] == ["record"]
        harness.restart()
        assert sorted(log[3:]) == ["close 0", "close 1", "open 0", "open 1"]


@pytest.mark.parametrize("hook", ["on_open", "on_close"])
def test_a_failed_hook_is_reported_and_leaves_nothing_open(
    hook: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    app = App("app")
    events = app.topic("events", partitions=2)

    @app.process(events)
    async def service(ctx: Context, event: Any) -> None: ...

    @getattr(service, hook)  # type: ignore[untyped-decorator]
    async def failing(task: Any) -> None:
        if task.number == 1:
            raise RuntimeError("in the hook")

    closed: list[MemoryStore] = []
    monkeypatch.setattr(MemoryStore, "close", lambda store: closed.append(store))
    opens = pytest.raises(RuntimeError, match="in the hook") if hook == "on_open" else nullcontext()
    with opens, AppHarness(app):
        pass
    told = ["service.1: its close failed: RuntimeError: in the hook"]
    assert caplog.messages == ([] if hook == "on_open" else told)
    assert len(set(map(id, closed))) == 2
