"""When a bounded run is over."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Any

from tidegate import App, Context
from tidegate.engine.commit.committed_positions import read_committed
from tidegate.engine.runtime.state_directory import StateDirectory
from tidegate.engine.topology.plan import Plan
from tidegate.engine.worker.engine import Engine
from tidegate.keys import partition_of
from tidegate.logs.base import TopicPartition
from tidegate.logs.membership import LocalTasks, Membership, SingleWorker
from tidegate.settings import Settings
from tidegate.testing.memory_log import MemoryLog, MemoryWriter
from tidegate.time.clock import MAX_TIME

LATE = 0.3


class LateLog(MemoryLog):
    """Shows what is appended to a topic a while later, as a broker does whose transaction markers take their time."""

    def __init__(self, topic: str) -> None:
        super().__init__()
        self._late, self._seen = topic, dict[tuple[TopicPartition, int], float]()

    def bounds(self, source: TopicPartition) -> tuple[int, int]:
        start, end = super().bounds(source)
        if source.topic != self._late:
            return start, end
        now = time.monotonic()
        self._seen.setdefault((source, end), now)
        shown = [at for (known, at), since in self._seen.items() if known == source and now - since >= LATE]
        return start, max(shown, default=0)

    async def written_offsets(self, sources: Any) -> dict[TopicPartition, int]:
        return {source: super(LateLog, self).bounds(source)[1] for source in sources}


async def test_a_bounded_run_waits_for_committed_records_that_are_not_readable_yet() -> None:
    app, options = App("app"), Settings(partitions=1)
    numbers, again = app.topic("numbers", value_type=int), app.topic("again", value_type=int)
    handled: list[int] = []

    @app.process(numbers, again, to=again)
    async def count_down(ctx: Context, number: int) -> None:
        handled.append(number)
        if number:
            ctx.emit(number - 1)

    definition, log = app.define(), LateLog("again")
    plan = Plan(definition.id, definition.services, definition.topics, options, {})
    await log.create(plan.specs)
    await (await log.writer()).append({TopicPartition("numbers", 0): [(b"k", b"2", 0, ())]})
    engine = Engine(plan, log, StateDirectory(None, options), options, until_end=True)
    await engine.start()

    await asyncio.wait_for(engine.run(), 20)

    await engine.close_tasks(commit=True)
    assert handled == [2, 1, 0]


async def test_the_end_does_not_wait_for_the_next_commit_to_be_due() -> None:
    """Neither of the service that reads from outside, nor of the one behind it."""
    app, options = App("app"), Settings(partitions=2, commit_interval=3600)
    numbers, doubles = app.topic("numbers", value_type=int), app.topic("doubles", value_type=int)
    handled: list[int] = []

    @app.process(numbers, to=doubles)
    async def double(ctx: Context, number: int) -> None:
        ctx.emit(2 * number)

    @app.process(doubles)
    async def note(ctx: Context, number: int) -> None:
        handled.append(number)

    definition, log = app.define(), MemoryLog()
    plan = Plan(definition.id, definition.services, definition.topics, options, {})
    await log.create(plan.specs)
    key = next(b"%d" % number for number in range(100) if partition_of(b"%d" % number, 2) == 0)
    await (await log.writer()).append({TopicPartition("numbers", 0): [(key, b"%d" % n, 0, ()) for n in range(5)]})
    engine = Engine(plan, log, StateDirectory(None, options), options, until_end=True)
    await engine.start()

    await asyncio.wait_for(engine.run(), 20)

    await engine.close_tasks(commit=False)
    assert handled == [0, 2, 4, 6, 8]


class Heir(SingleWorker):
    """Gets the tasks of another worker when that one has left."""

    def __init__(self, inherited: TopicPartition) -> None:
        super().__init__()
        self.inherited, self._left = inherited, asyncio.Event()

    async def join(self, tasks: Iterable[TopicPartition], held: LocalTasks) -> None:
        await super().join(set(tasks) - {self.inherited}, held)

    async def changed(self, generation: int) -> None:
        await self._left.wait()
        await super().changed(generation)

    def inherit(self) -> None:
        if not self._left.is_set():
            self.owned |= {self.inherited}
            self.generation += 1
            self._left.set()


class SlowLog(MemoryLog):
    """A worker leaves during a query of the end offsets, and append responses are delayed."""

    heir: Heir | None = None

    async def end_offsets(self, sources: Any) -> dict[TopicPartition, int]:
        found = dict(await super().end_offsets(sources))
        if self.heir is not None and self.heir.inherited in found:
            self.heir.inherit()
            await asyncio.sleep(LATE / 10)
        return found

    async def writer(self, transactional_id: str | None = None) -> MemoryWriter:
        writer = await super().writer(transactional_id)
        append = writer.append

        async def late(*arguments: Any) -> Any:
            positions = await append(*arguments)
            await asyncio.sleep(LATE)
            return positions

        writer.append = late  # type: ignore[method-assign, assignment]
        return writer


async def test_tasks_reassigned_at_the_end_of_a_bounded_run_are_completed_again() -> None:
    """Opening one begins with a commit that knows of no end; a worker that left it at that would take it back."""
    app, options = App("app"), Settings(partitions=2)

    @app.process(app.topic("numbers", value_type=int))
    async def note(ctx: Context, number: int) -> None:
        pass

    definition, log = app.define(), SlowLog()
    plan = Plan(definition.id, definition.services, definition.topics, options, {})

    async def run(membership: Membership) -> None:
        engine = Engine(plan, log, StateDirectory(None, options), options, membership=membership, until_end=True)
        await engine.start()
        await asyncio.wait_for(engine.run(), 20)
        await engine.close_tasks(commit=True)

    await run(SingleWorker())
    log.heir = Heir(plan.tasks[1].changelog)
    await run(log.heir)

    assert log.heir.generation == 2, "it inherited nothing"
    committed, _ = await read_committed(log, plan.tasks)
    assert {name: task.watermark for name, task in committed.items()} == {"note.0": MAX_TIME, "note.1": MAX_TIME}
