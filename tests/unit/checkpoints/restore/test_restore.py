"""Restoring: whatever happened after the cut, and at any parallelism, each event counts once."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest

from tidegate import App, Context, ListState, MapState, OperatorState, Redistribute, Timer, ValueState
from tidegate.checkpoints.storage.checkpoint_storage import CheckpointStorage
from tidegate.errors import DroppedStateError, SchemaError, UnknownNameError, UsageError
from tidegate.faults import InjectedFault, arm, disarm, parse
from tidegate.owner_rpc.reset import reset_app
from tidegate.testing import AppHarness


class Hop(msgspec.Struct, frozen=True):
    id: int
    user: str
    item: str
    left: int = 0


def hops_app(**options: Any) -> App:
    """Two services in a circle: an event with n hops left is handled n + 1 times by each."""
    app = App("hops")
    events = app.topic("events", value_type=Hop, key="user", partitions=3)
    middle = app.topic("middle", value_type=Hop, key="item", partitions=2)
    again = app.topic("again", value_type=Hop, key="user", partitions=3)

    @app.process(events, again, to=middle, **options.get("first", {}))
    async def first(ctx: Context, hop: Hop, seen: MapState[int, int]) -> None:
        seen[hop.id] = seen.get(hop.id, 0) + 1
        ctx.emit(hop)

    @app.process(middle, to=again, **options.get("second", {}))
    async def second(ctx: Context, hop: Hop, seen: MapState[int, int], order: ListState[int]) -> None:
        seen[hop.id] = seen.get(hop.id, 0) + 1
        order.append(hop.id)
        if hop.left:
            ctx.emit(Hop(hop.id, hop.user, hop.item, hop.left - 1))

    return app


def check(harness: AppHarness, sent: list[Hop]) -> None:
    """Against a plain fold."""
    for user in {hop.user for hop in sent}:
        expected = {hop.id: hop.left + 1 for hop in sent if hop.user == user}
        assert harness.state("first", "seen", user) == expected, user
    for item in {hop.item for hop in sent}:
        expected = {hop.id: hop.left + 1 for hop in sent if hop.item == item}
        assert harness.state("second", "seen", item) == expected, item


def make(count: int, start: int = 0, hops: int = 2) -> list[Hop]:
    return [Hop(n, f"u{n % 7}", f"i{n % 5}", n % (hops + 1)) for n in range(start, start + count)]


def some_work(harness: AppHarness, rng: random.Random) -> None:
    """A part of what there is to do, so that a cut finds records everywhere."""

    async def work() -> None:
        for _ in range(rng.randrange(6)):
            await harness.engine.read_once()
            await harness.engine.poll_control(timeout=0)
            await harness.engine.work_once(commits=False)
            for task in rng.sample(list(harness.engine.tasks.values()), 2):
                await task.commit_all()

    harness.run(work())


@pytest.mark.parametrize("seed", [*range(2), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 20))])
@pytest.mark.parametrize("partitions", [None, 1, 3, 8])
def test_a_checkpoint_of_any_moment_restores_at_any_parallelism(
    tmp_path: Path, seed: int, partitions: int | None
) -> None:
    rng = random.Random(seed)
    with AppHarness(hops_app(), checkpoints=tmp_path) as harness:
        sent = make(60)
        harness.send_many("events", sent[:30], settle=rng.random() < 0.3)
        some_work(harness, rng)
        harness.send_many("events", sent[30:], settle=False)
        some_work(harness, rng)
        manifest = harness.checkpoint("cut")
        after = make(20, start=60)
        harness.send_many("events", after, settle=rng.random() < 0.5)
        some_work(harness, rng)
        restored = harness.restore("cut", partitions=partitions)
        check(harness, [*sent, *after])
        assert restored.run == "2"
        assert restored.same_log
        assert restored.loaded.in_flight == manifest.in_flight_records
        if partitions is not None:
            tasks = Counter(task.definition.name for task in harness.engine.tasks.values())
            assert (tasks["first"], tasks["second"]) == (partitions, partitions)
        more = make(20, start=80)
        harness.send_many("events", more)
        harness.crash()
        check(harness, [*sent, *after, *more])


@pytest.mark.parametrize("partitions", [None, 1, 3, 8])
def test_all_in_flight_records_are_restored(tmp_path: Path, partitions: int | None) -> None:
    """The first service has done its part, and nothing of it has reached the second."""
    with AppHarness(hops_app(), checkpoints=tmp_path) as harness:
        harness.send_many("events", make(60), settle=False)

        async def only_the_first() -> None:
            await harness.engine.read_once()
            for task in harness.engine.tasks.values():
                while task.definition.name == "first" and task.ready:
                    task.run()
                await task.commit_all()

        harness.run(only_the_first())
        assert harness.checkpoint("cut").in_flight_records == 60
        restored = harness.restore("cut", partitions=partitions, settle=False)
        assert restored.loaded.in_flight == 60
        harness.checkpoint("held")  # before any of it is taken up
        assert harness.restore("held", settle=False).loaded.in_flight == 60
        harness.settle()
        check(harness, make(60))


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 10))])
def test_successive_restores_are_exact(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    with AppHarness(hops_app(), checkpoints=tmp_path) as harness:
        sent: list[Hop] = []
        for number, partitions in enumerate([4, None, 2, 3, 7, None, 1]):
            fresh = make(30, start=len(sent))
            harness.send_many("events", fresh, settle=rng.random() < 0.3)
            sent += fresh
            some_work(harness, rng)
            harness.checkpoint(f"s{number}")
            some_work(harness, rng)
            harness.restore(f"s{number}", partitions=partitions, settle=rng.random() < 0.5)
            some_work(harness, rng)
        harness.settle()
        check(harness, sent)
        assert harness.engine.plan.run.id == "8"
        topics = harness.run(harness.log.topics())
        assert not [name for name in topics if "run-6" in name or name == "hops.first.changelog"]


def test_an_older_savepoint_can_be_gone_back_to(tmp_path: Path) -> None:
    with AppHarness(hops_app(), checkpoints=tmp_path) as harness:
        harness.send_many("events", make(20))
        harness.checkpoint("old")
        harness.send_many("events", make(20, start=20))
        harness.checkpoint("new")
        harness.restore("new", partitions=4)
        harness.send_many("events", make(20, start=40))
        restored = harness.restore("old", partitions=2)
        assert restored.same_log  # though the run that it was taken in has no topics any more
        check(harness, make(60))  # what was sent since then is in the topics, and counts again


def test_a_restore_preserves_the_order_of_each_key(tmp_path: Path) -> None:
    rng = random.Random(1)
    with AppHarness(hops_app(), checkpoints=tmp_path) as harness:
        sent = make(200, hops=0)
        for start in range(0, 200, 40):
            harness.send_many("events", sent[start : start + 40], settle=False)
            some_work(harness, rng)
            if start in (80, 160):
                harness.checkpoint(f"at{start}")
                harness.restore(f"at{start}", partitions=start // 20, settle=False)
        harness.settle()
        for item in {hop.item for hop in sent}:
            by_user = [hop.id for hop in sent if hop.item == item]
            got = harness.state("second", "order", item)
            assert sorted(got) == by_user
            for user in {hop.user for hop in sent}:  # what one actor has sent to another arrives in its order
                mine = [hop.id for hop in sent if hop.item == item and hop.user == user]
                assert [number for number in got if number in mine] == mine


def test_a_service_that_is_rescaled_reads_its_input_through_a_shuffle_and_the_topic_stays(tmp_path: Path) -> None:
    with AppHarness(hops_app(), checkpoints=tmp_path) as harness:
        harness.send_many("events", make(20))
        harness.checkpoint("cut")
        restored = harness.restore("cut", partitions={"first": 5})
        assert restored.changed == {"first": 3}
        assert restored.loaded.moved > 0
        topics = harness.run(harness.log.topics())
        assert topics["events"].partitions == 3
        assert topics["hops.run-2.first.events.by-key"].partitions == 5
        assert "hops.run-2.second.middle.by-key" not in topics
        harness.checkpoint("again")
        restored = harness.restore("again")  # what it was restored to is what it keeps
        assert restored.parallelism["first"] == 5
        check(harness, make(20))


def test_unchanged_parallelism_moves_no_state(tmp_path: Path) -> None:
    with AppHarness(hops_app(), checkpoints=tmp_path) as harness:
        harness.send_many("events", make(20))
        harness.checkpoint("cut")
        restored = harness.restore("cut", partitions={"first": 3, "second": 2})
        assert restored.loaded.moved == 0
        assert not [name for name in restored.parallelism if name.endswith("by-key")]


@pytest.mark.parametrize("point", ["restore.loading", "restore.loaded", "restore.begun", "restore.fenced"])
def test_a_failed_restore_leaves_one_run_intact_and_can_be_repeated(tmp_path: Path, point: str) -> None:
    with AppHarness(hops_app(), checkpoints=tmp_path) as harness:
        harness.send_many("events", make(20), settle=False)
        some_work(harness, random.Random(3))
        harness.checkpoint("cut")
        harness.send_many("events", make(20, start=20))
        arm(parse(f"{point}:raise@1"))
        try:
            with pytest.raises(InjectedFault):
                harness.restore("cut", partitions=4)
        finally:
            disarm()
        check(harness, make(40))  # whichever it is
        assert harness.engine.plan.run.id == ("1" if point in ("restore.loading", "restore.loaded") else "2")
        harness.restore("cut", partitions=5)
        check(harness, make(40))


def test_a_restore_to_another_log_requires_start_offsets(tmp_path: Path) -> None:
    there = tmp_path / "there"
    with AppHarness(hops_app(), checkpoints=tmp_path) as one, AppHarness(hops_app(), checkpoints=there) as other:
        one.send_many("events", make(30), settle=False)
        some_work(one, random.Random(5))
        one.checkpoint("cut")
        reader = one.savepoint("cut")
        done = {source: mark for task in reader.manifest.tasks for source, mark in task.marker.inputs.items()}
        assert done
        other.send_many("events", make(10, start=100), settle=True)
        with pytest.raises(UsageError, match="--start events=earliest"):
            other.restore(reader)
        with pytest.raises(UnknownNameError):
            other.restore(reader, starts={"nothing": "latest"})
        other.clock.advance(10)
        later = other.clock.now()
        other.send_many("events", make(5, start=200))
        restored = other.restore(reader, starts={"events": later}, partitions=4)
        assert other.checkpoint("there").epoch == 1  # the first one on this log
        assert not restored.same_log
        assert restored.run == "2"
        counted = [number for user in range(7) for number in other.state("first", "seen", f"u{user}")]
        assert sorted(number for number in counted if number >= 100) == list(range(200, 205))
        finished = Counter(number for number in counted if number < 100)
        assert set(finished.values()) <= {1}
        total = sum(sum(other.state("second", "seen", f"i{item}").values()) for item in range(5))
        firsts = sum(sum(other.state("first", "seen", f"u{user}").values()) for user in range(7))
        assert total == firsts  # all that the first has handled reached the second, be it in flight


def test_under_another_name_beside_the_old_one(tmp_path: Path) -> None:
    """What the old app has sent, or still sends, to shared topics is not counted by the new one."""

    def app(name: str) -> App:
        made = hops_app()
        other = App(name)
        for topic in made.topics.values():
            other._topics[topic.name] = topic
        other._services.update(made.services)
        return other

    with AppHarness(app("hops"), checkpoints=tmp_path) as harness:
        harness.send_many("events", make(20), settle=False)
        some_work(harness, random.Random(2))
        harness.checkpoint("cut")
        harness.send_many("events", make(20, start=20))
        reader = harness.savepoint("cut")
        restored = harness.restore(reader, app=app("copy"), partitions=2)
        assert harness.engine.plan.app == "copy"
        assert restored.same_log
        check(harness, make(40))


class Reading(msgspec.Struct, frozen=True):
    sensor: str
    value: int


def sensors_app(count: int = 4, how: Any = "split") -> App:
    app = App("sensors")
    readings = app.topic("readings", value_type=Reading, key="sensor", partitions=count)

    @app.process(readings)
    async def watch(
        ctx: Context,
        reading: Reading,
        last: ValueState[int | None],
        log: Annotated[OperatorState[str], Redistribute(how)],
    ) -> None:
        last.value = reading.value
        log.append(f"{ctx.task.number}:{reading.sensor}")
        ctx.timers.at(ctx.timestamp + 1000, name="late")

    @watch.on_timer("late")
    async def late(ctx: Context, timer: Timer, last: ValueState[int | None]) -> None:
        last.value = -(last.value or 0)

    return app


@pytest.mark.parametrize("partitions", [1, 3, 6])
def test_operator_state_is_split_or_broadcast_on_restore(tmp_path: Path, partitions: int) -> None:
    for how in ("split", "union"):
        with AppHarness(sensors_app(how=how), checkpoints=tmp_path / how) as harness:
            harness.send_many("readings", [Reading(f"s{n}", n) for n in range(20)])
            before = sorted(harness.state("watch", "log"))
            harness.checkpoint("cut")
            harness.restore("cut", partitions=partitions)
            after = sorted(harness.state("watch", "log"))
            assert after == sorted(before * (1 if how == "split" else partitions))


@pytest.mark.parametrize("partitions", [1, 3, 6])
def test_restored_timers_follow_their_keys_and_fire_once(tmp_path: Path, partitions: int) -> None:
    with AppHarness(sensors_app(), checkpoints=tmp_path) as harness:
        now = harness.clock.now()
        harness.send_many("readings", [Reading(f"s{n}", n + 1) for n in range(20)], timestamp=now)
        harness.checkpoint("cut")
        harness.restore("cut", partitions=partitions)
        assert [harness.state("watch", "last", f"s{n}") for n in range(20)] == list(range(1, 21))
        harness.advance_watermark(now + 2000)
        assert [harness.state("watch", "last", f"s{n}") for n in range(20)] == [-n for n in range(1, 21)]
        assert all(task.time.watermark >= now for task in harness.engine.tasks.values())


def test_an_incompatible_savepoint_is_refused_before_any_change(tmp_path: Path) -> None:
    def other(annotation: Any, *, name: str = "watch") -> App:
        app = App("sensors")
        readings = app.topic("readings", value_type=Reading, key="sensor", partitions=4)

        async def handler(ctx: Context, reading: Reading, last: Any) -> None: ...

        handler.__annotations__["last"] = annotation
        app.process(readings, name=name)(handler)
        return app

    app = sensors_app()
    with AppHarness(app, checkpoints=tmp_path) as harness:
        harness.send_many("readings", [Reading(f"s{n}", n + 1) for n in range(20)])
        harness.checkpoint("cut")
        topics = harness.run(harness.log.topics())
        refusals: list[tuple[App, type[Exception]]] = [
            (other(ValueState[str | None]), SchemaError),
            (other(ValueState[int | None]), DroppedStateError),
            (other(ValueState[int | None], name="renamed"), DroppedStateError),
        ]
        for wrong, error in refusals:
            with pytest.raises(error):
                _refused(harness, wrong, app)
            assert harness.run(harness.log.topics()) == topics
        restored = harness.restore("cut", app=other(ValueState[int | None]), allow_dropped=True)
        assert restored.dropped == ["state log of watch"]


def _refused(harness: AppHarness, wrong: App, right: App) -> None:
    """The old run continues with the old code."""
    definition, services = harness._definition, harness._services
    harness._definition = wrong.define()
    harness._services = harness._definition.services
    try:
        from tidegate.checkpoints.restore.restore import RestoreOptions

        harness.run(harness._restore("cut", RestoreOptions()))
    finally:
        harness._definition, harness._services = definition, services


def test_an_impossible_parallelism_is_refused(tmp_path: Path) -> None:
    with AppHarness(sensors_app(), checkpoints=tmp_path) as harness:
        harness.checkpoint("cut")
        with pytest.raises(UsageError, match="1 to 128"):
            harness.restore("cut", partitions=0)
        with pytest.raises(UsageError, match="no service 'nobody'"):
            harness.restore("cut", partitions={"nobody": 3})
        assert CheckpointStorage(str(tmp_path), "sensors").savepoints() == ["cut"]


def test_a_reset_app_stays_in_its_run(tmp_path: Path) -> None:
    with AppHarness(hops_app(), checkpoints=tmp_path) as harness:
        harness.send_many("events", make(20))
        harness.checkpoint("cut")
        harness.restore("cut", partitions=2)
        harness.run(harness.engine.close_tasks(commit=False))
        plan = harness.engine.plan
        harness.run(reset_app(plan, harness.log, harness.engine.stores, outputs=False, everything=False))
        harness.run(harness._open())
        harness.settle()
        assert harness.engine.plan.run.id == "2"
        assert len(harness.engine.plan.tasks) == len(plan.tasks)
        check(harness, make(20))  # from the input's start
