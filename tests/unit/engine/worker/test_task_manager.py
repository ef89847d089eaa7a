"""Several workers on one log: tasks move, workers are suspended, answers are lost. The results stay exact."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate import App, Context, ValueState, WatermarkGenerator, WatermarkStrategy
from tidegate.engine.commit.committed_positions import read_committed
from tidegate.engine.runtime.state_directory import StateDirectory
from tidegate.engine.topology.plan import Plan
from tidegate.engine.worker.engine import Engine
from tidegate.errors import FencedError, LogUnavailableError
from tidegate.logs.base import TopicPartition
from tidegate.logs.membership import LocalTasks
from tidegate.logs.observer import Worker
from tidegate.settings import Settings
from tidegate.testing import MemoryLog
from tidegate.testing.memory_log import MemoryWriter
from tidegate.time.clock import ManualClock

PARTITIONS = 3
WORKERS = 3


class Group:
    """Assigns tasks, and records which workers know it. A worker that does not know it continues as before."""

    def __init__(self) -> None:
        self.generation = 1
        self.owners: dict[TopicPartition, int] = {}


class Place:
    """One worker's place in it."""

    def __init__(self, group: Group, number: int) -> None:
        self._group, self._number = group, number
        self.owned: frozenset[TopicPartition] = frozenset()
        self.generation = 0
        self.name, self.session_valid = f"worker {number}", True

    async def workers(self) -> list[Worker]:
        return [Worker(name=self.name, tasks=self.owned)]

    def learn(self) -> None:
        self.owned = frozenset(task for task, owner in self._group.owners.items() if owner == self._number)
        self.generation = self._group.generation

    async def join(self, tasks: Iterable[TopicPartition], held: LocalTasks) -> None:
        for task in tasks:
            self._group.owners.setdefault(task, 0)
        self.learn()

    async def changed(self, generation: int) -> None:
        await asyncio.Event().wait()

    async def confirm(self) -> bool:
        return self.generation == self._group.generation

    async def leave(self) -> None:
        self.owned = frozenset()


class FlakyLog(MemoryLog):
    """Loses answers, or refuses to append, when told to."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.lose_answers = 0
        self.refuse = 0
        self.lost = 0
        self.slow: asyncio.Event | None = None
        """Appends wait for it."""

    async def writer(self, transactional_id: str | None = None) -> MemoryWriter:
        writer = await super().writer(transactional_id)
        if transactional_id is None:
            return writer
        append = writer.append

        async def flaky(*arguments: Any) -> Any:
            if self.slow is not None:
                await self.slow.wait()
            if self.refuse > 0:
                self.refuse -= 1
                raise LogUnavailableError("the broker is away")
            positions = await append(*arguments)
            if self.lose_answers > 0:
                self.lose_answers -= 1
                self.lost += 1
                raise LogUnavailableError("nobody knows whether it was committed")
            return positions

        writer.append = flaky  # type: ignore[method-assign, assignment]
        return writer


def make_app() -> App:
    app = App("many", partitions=PARTITIONS)
    events = app.topic("events")
    middle = app.topic("middle")
    out = app.topic("out")

    @app.process(events, to=middle)
    async def first(ctx: Context, event: int, seen: ValueState[int | None]) -> None:
        seen.value = (seen.value or 0) + 1
        ctx.emit([event, seen.value])

    @app.process(middle, to=out)
    async def second(ctx: Context, event: list[int], seen: ValueState[int | None]) -> None:
        seen.value = (seen.value or 0) + 1
        ctx.emit([*event, seen.value])

    return app


class World:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.log = FlakyLog(clock=self.clock.now)
        self.group = Group()
        self.definition = make_app().define()
        self.settings = Settings(partitions=PARTITIONS)
        self.places: list[Place] = []
        self.engines: list[Engine] = []
        self.sent: list[tuple[str, int]] = []

    async def start(self) -> None:
        for number in range(WORKERS):
            definition = self.definition
            plan = Plan(definition.id, definition.services, definition.topics, self.settings, await self.log.topics())
            place = Place(self.group, number)
            stores = StateDirectory(None, self.settings)
            engine = Engine(plan, self.log, stores, self.settings, membership=place, clock=self.clock)
            await engine.start()
            self.places.append(place)
            self.engines.append(engine)

    async def stop(self) -> None:
        for engine in self.engines:
            await engine.close_tasks(commit=False)

    async def send(self, count: int) -> None:
        writer = await self.log.writer()
        topic = self.engines[0].plan.topics["events"]
        for _ in range(count):
            key = f"key {len(self.sent) % 7}"
            self.sent.append((key, len(self.sent)))
            at = TopicPartition("events", topic.partition_for(key.encode()))
            value = topic.codec.encode(self.sent[-1][1])
            await writer.append({at: [(key.encode(), value, self.clock.now(), ())]})

    def move(self, task: int, owner: int) -> None:
        tasks = sorted(task for task in self.group.owners if task.topic.endswith(".changelog"))
        self.group.owners[tasks[task % len(tasks)]] = owner
        self.group.generation += 1

    async def tell(self, worker: int) -> None:
        """The worker receives its assignment, begins to open new tasks, and gives up revoked ones."""
        self.places[worker].learn()
        await self.engines[worker]._task_manager.reconcile()

    async def work(self, worker: int, turns: int, *, commits: bool) -> None:
        engine = self.engines[worker]
        for _ in range(turns):
            await asyncio.sleep(0)
            await engine.read_once()
            await engine.poll_control(timeout=0)
            await engine.work_once(commits=False)
            if commits:
                await self.commit(engine)

    async def commit(self, engine: Engine) -> None:
        for task in list(engine.tasks.values()):
            try:
                await task.commit_all()
            except (FencedError, LogUnavailableError):
                assert engine._task_manager.reopen(task)

    async def drain(self) -> None:
        """All brokers have current metadata, and nothing fails any more."""
        self.log.lose_answers = self.log.refuse = 0
        async with asyncio.timeout(20):
            for worker in range(WORKERS):
                await self.tell(worker)
            while await self._unfinished():
                for worker, engine in enumerate(self.engines):
                    await self.work(worker, 1, commits=True)
                    if engine._task_manager.failure is not None:
                        raise engine._task_manager.failure
                await asyncio.sleep(0.001)

    async def _unfinished(self) -> bool:
        if any(engine._task_manager.opening for engine in self.engines):
            return True
        tasks = [task for engine in self.engines for task in engine.tasks.values()]
        ends = await self.log.end_offsets({source for task in tasks for source in task.inputs})
        return len(tasks) < 2 * PARTITIONS or not all(
            task.quiet and all(input_.position >= ends[source] for source, input_ in task.inputs.items())
            for task in tasks
        )

    async def results(self) -> dict[str, list[Any]]:
        reader = self.log.reader()
        sources = [TopicPartition("out", number) for number in range(PARTITIONS)]
        reader.assign(dict.fromkeys(sources, 0))
        found: dict[str, list[Any]] = {}
        codec = self.engines[0].plan.topics["out"].codec
        while batches := await reader.read(timeout=0):
            for batch in batches:
                for record in batch.records:
                    found.setdefault((record.key or b"").decode(), []).append(codec.decode(record.value or b""))
        return found

    def expected(self) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = {}
        seen: Counter[str] = Counter()
        for key, event in self.sent:
            seen[key] += 1
            found.setdefault(key, []).append([event, seen[key], seen[key]])
        return found


steps = st.one_of(
    st.tuples(st.just("send"), st.integers(1, 6)),
    st.tuples(st.just("move"), st.integers(0, 2 * PARTITIONS - 1), st.integers(0, WORKERS - 1)),
    st.tuples(st.just("tell"), st.integers(0, WORKERS - 1)),
    st.tuples(st.just("work"), st.integers(0, WORKERS - 1), st.integers(1, 4), st.booleans()),
    st.tuples(st.just("lose"), st.integers(1, 2)),
    st.tuples(st.just("refuse"), st.integers(1, 2)),
)


async def play(script: list[tuple[Any, ...]], world: World) -> None:
    await world.start()
    try:
        for step in script:
            match step:
                case "send", count:
                    await world.send(count)
                case "move", task, owner:
                    world.move(task, owner)
                case "tell", worker:
                    await world.tell(worker)
                case "work", worker, turns, commits:
                    await world.work(worker, turns, commits=commits)
                case "lose", count:
                    world.log.lose_answers += count
                case "refuse", count:
                    world.log.refuse += count
        await world.drain()
        assert await world.results() == world.expected()
    finally:
        await world.stop()


@settings(max_examples=150, deadline=None)
@given(st.lists(steps, max_size=40))
def test_every_event_takes_effect_once_despite_rebalances_and_failures(script: list[tuple[Any, ...]]) -> None:
    asyncio.run(play(script, World()))


async def _opened(world: World, worker: int) -> None:
    await asyncio.wait_for(world.engines[worker]._task_manager.wait_until_open(), 5)


async def test_a_worker_suspended_during_a_reassignment_is_fenced_and_does_not_fence_its_successor() -> None:
    world = World()
    await world.start()
    await world.send(10)
    await world.work(0, 2, commits=False)
    for task in range(2 * PARTITIONS):
        world.move(task, 1)
    await world.tell(1)
    await _opened(world, 1)
    await world.work(0, 1, commits=True)  # it does not know yet
    fenced = world.engines[0]._task_manager.opening_names()
    assert fenced, "those that had something to commit"
    assert not fenced & world.engines[0].tasks.keys()
    await asyncio.sleep(0.3)
    assert len(world.engines[1].tasks) == 2 * PARTITIONS
    await world.work(1, 2, commits=True)
    assert len(world.engines[1].tasks) == 2 * PARTITIONS, "nobody fenced the new owner"

    await world.drain()
    assert await world.results() == world.expected()
    await world.stop()


async def test_a_lost_response_is_resolved_from_the_log() -> None:
    world = World()
    await world.start()
    await world.send(5)
    world.log.lose_answers = 2
    await world.work(0, 3, commits=True)
    await world.drain()

    assert world.log.lost == 2
    assert await world.results() == world.expected()
    await world.stop()


async def test_a_task_is_revoked_while_it_opens() -> None:
    world = World()
    await world.start()
    await world.send(5)
    world.log.refuse = 10**6
    world.move(0, 1)
    await world.tell(0)
    await world.tell(1)
    await asyncio.sleep(0.05)
    assert world.engines[1]._task_manager.opening_names()
    world.move(0, 2)
    await world.tell(1)
    assert not world.engines[1]._task_manager.opening_names()
    world.log.refuse = 0

    await world.drain()
    assert await world.results() == world.expected()
    await world.stop()


async def test_a_failed_last_commit_is_reported_when_a_worker_stops() -> None:
    world = World()
    await world.start()
    await world.send(10)
    await world.work(0, 2, commits=False)
    busy = {name for name, task in world.engines[0].tasks.items() if task.uncommitted}
    world.log.refuse = 10**6

    await world.engines[0].close_tasks(commit=True)

    assert busy
    assert set(world.engines[0].uncommitted) == busy
    await world.stop()


async def test_so_is_what_tasks_have_lost_that_are_being_opened_again() -> None:
    world = World()
    await world.start()
    await world.send(10)
    world.log.refuse = 10**6
    await world.work(0, 2, commits=True)
    lost = world.engines[0]._task_manager.opening_names()

    await world.engines[0].close_tasks(commit=True)

    assert lost
    assert set(world.engines[0].uncommitted) == lost
    await world.stop()


async def test_a_graceful_shutdown_leaves_no_uncommitted_work() -> None:
    world = World()
    await world.start()
    await world.send(10)
    await world.work(0, 2, commits=False)

    await world.engines[0].close_tasks(commit=True)

    assert not world.engines[0].uncommitted
    await world.stop()


async def _give_up(world: World, task: int) -> str:
    """A task is revoked from worker 0, which is stopped during the task's last commit."""
    world.log.slow = asyncio.Event()
    world.move(task, 1)
    world.places[0].learn()
    before = set(world.engines[0].tasks)
    giving_up = asyncio.create_task(world.engines[0]._task_manager.reconcile())
    for _ in range(20):
        await asyncio.sleep(0)
    giving_up.cancel()
    await asyncio.gather(giving_up, return_exceptions=True)
    (name,) = before - set(world.engines[0].tasks)
    return name


async def test_a_worker_that_stops_during_a_revocation_commits_the_revoked_tasks_work() -> None:
    world = World()
    await world.start()
    await world.send(20)
    await world.work(0, 2, commits=False)
    name = await _give_up(world, 0)
    assert world.log.slow is not None
    asyncio.get_running_loop().call_later(0.05, world.log.slow.set)

    await world.engines[0].close_tasks(commit=True)

    plans = [plan for plan in world.engines[0].plan.tasks if plan.id == name]
    committed, ends = await read_committed(world.log, plans)
    assert min(ends.values()) > 0
    assert committed[name].lag(ends) == 0
    assert not world.engines[0].uncommitted
    await world.stop()


async def test_a_task_reassigned_during_its_revocation_is_reopened() -> None:
    world = World()
    await world.start()
    await world.send(20)
    await world.work(0, 2, commits=False)
    name = await _give_up(world, 0)
    assert world.log.slow is not None
    world.move(0, 0)
    world.log.slow.set()

    await world.tell(0)

    await _opened(world, 0)
    assert name in world.engines[0].tasks
    await world.drain()
    assert await world.results() == world.expected()
    await world.stop()


class Broken(WatermarkStrategy):
    def generator(self) -> WatermarkGenerator:
        raise ValueError("no watermarks today")


async def test_a_task_that_cannot_be_made_is_an_error_and_no_wait() -> None:
    app, options = App("app", watermark=Broken()), Settings(partitions=1)

    @app.process(app.topic("in"))
    async def service(ctx: Context, event: Any) -> None: ...

    log = MemoryLog()
    plan = Plan(app.define().id, app.define().services, app.define().topics, options, {})
    await log.create(plan.specs)
    engine = Engine(plan, log, StateDirectory(None, options), options, clock=ManualClock(0))

    with pytest.raises(ValueError, match="no watermarks today"):
        await asyncio.wait_for(engine.start(), 10)
    await engine.close_tasks(commit=False)
