"""A world that crashes at random while checkpoints are taken: real tasks, real stores, a real leader, a log in memory.

Tasks of `a` read the outside topic `src` and the feedback topic `u`; tasks of `b` read `t`. `a` emits to `t`, `b` back
to `u`, while a record has hops left; each counts what it handles, some of it after waiting a while. Whatever happens,
each record must count once in the end, although `t` and `u` are trimmed when they are read. For every checkpoint on the
way the same must come out when one goes on from it: its state, and then what was in flight, and then what came from
outside behind its positions.

Everything runs in one thread, in an order that the seed decides: what takes a thread elsewhere takes some turns of the
loop here.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from tidegate import App, Context, ValueState
from tidegate.checkpoints.coordination.service import CheckpointService
from tidegate.checkpoints.storage.manifest import Manifest
from tidegate.checkpoints.storage.reader import CheckpointReader
from tidegate.engine.formats.commit_marker import InputMark
from tidegate.engine.runtime.state_directory import StateDirectory
from tidegate.engine.topology.plan import Plan
from tidegate.engine.worker.engine import Engine
from tidegate.errors import CheckpointDamagedError, FencedError, LogUnavailableError
from tidegate.keys import partition_of
from tidegate.logs.base import TopicPartition
from tidegate.settings import Settings
from tidegate.state.base import Store
from tidegate.state.layout import KEYED, parse_keyed, prefix_range
from tidegate.testing.memory_log import MemoryLog, MemoryWriter
from tidegate.time.clock import ManualClock

__all__ = ("World", "play", "soon")

PARTITIONS, RECORDS, HOPS = 2, 14, 3


def make_app(chance: random.Random) -> App:
    app = App("cut", partitions=PARTITIONS)
    src, t, u = (app.topic(name, value_type=int) for name in ("src", "t", "u"))

    async def handle(ctx: Context, hops: int, count: ValueState[int | None]) -> None:
        count.value = (count.value or 0) + 1
        if hops:
            ctx.emit(hops - 1, key=f"{ctx.key}{ctx.task.service}")
        if chance.random() < 0.3:
            for _ in range(chance.randrange(30)):
                await asyncio.sleep(0)

    @app.process(src, u, to=t, name="a")
    async def a(ctx: Context, hops: int, count: ValueState[int | None]) -> None:
        await handle(ctx, hops, count)

    @app.process(t, to=u, name="b")
    async def b(ctx: Context, hops: int, count: ValueState[int | None]) -> None:
        await handle(ctx, hops, count)

    return app


class SlowLog(MemoryLog):
    """Its transactions take a few turns of the loop, during which handling continues."""

    def __init__(self, chance: random.Random, **options: Any) -> None:
        super().__init__(**options)
        self._chance = chance
        self.trims = 0

    async def trim(self, starts: Mapping[TopicPartition, int]) -> None:
        self.trims += 1
        await super().trim(starts)

    async def writer(self, transactional_id: str | None = None) -> MemoryWriter:
        writer = await super().writer(transactional_id)
        append = writer.append

        async def slowly(*arguments: Any) -> Any:
            for _ in range(self._chance.randrange(4)):
                await asyncio.sleep(0)
            return await append(*arguments)

        writer.append = slowly  # type: ignore[method-assign, assignment]
        return writer


class Files(dict[str, Any]):
    """A storage in memory of one world. fsspec's own is one for all, and listing it fails, once in a thousand worlds,
    when another thread writes at that moment: here a copy is listed, which is made in one go."""

    def items(self) -> Any:
        return self.copy().items()


class World:
    engine: Engine
    checkpoints: CheckpointService

    def __init__(self, seed: int, directory: Path | None) -> None:
        self.chance = random.Random(seed)
        self.clock = ManualClock()
        self.log = SlowLog(self.chance, clock=self.clock.now)
        self.definition = make_app(self.chance).define()
        self.settings = Settings(partitions=PARTITIONS, slice_ms=1e-6, checkpoint_keep=1000, checkpoint_timeout=1e9)
        self.url = f"memory://{uuid.uuid4().hex}" if directory is None else str(directory / "kept")
        self.stores = StateDirectory(None if directory is None else directory / "stores", self.settings)
        self.counted: Counter[str] = Counter()
        self._closing: list[asyncio.Future[Any]] = []

    # -- one run of the worker ---------------------------------------------------------------------------------------
    async def start(self) -> None:
        definition = self.definition
        plan = Plan(definition.id, definition.services, definition.topics, self.settings, await self.log.topics())
        self.checkpoints = CheckpointService(
            plan, self.log, self.stores, self.settings, self.clock, url=self.url, leads=lambda: True
        )
        self.engine = Engine(plan, self.log, self.stores, self.settings, clock=self.clock, snapshots=self.checkpoints)
        await self.engine.start()

    async def send(self) -> None:
        writer = await self.log.writer()
        for number in range(RECORDS):
            key = f"r{number}".encode()
            await writer.append({TopicPartition("src", partition_of(key, PARTITIONS)): [(key, b"%d" % HOPS, 1, ())]})

    async def crash(self) -> None:
        """The worker dies, and starts again; perhaps without what it had on disk."""
        self.counted["crashes"] += 1
        await self.engine.close_tasks(commit=False)
        await self.checkpoints.coordinator.resign()
        if self.chance.random() < 0.5:
            self.stores.destroy_all()
        await self.start()

    async def fail_task(self) -> None:
        """One task loses its connection: what it had not committed is lost, and it is opened again."""
        tasks = list(self.engine.tasks.values())
        if tasks:
            self.counted["failures"] += 1
            task = self.chance.choice(tasks)
            task.invoker.fail(LogUnavailableError("torn off"))
            self.engine._task_manager.reopen(task)

    # -- steps -------------------------------------------------------------------------------------------------------
    async def step(self) -> None:
        dice = self.chance.random()
        if dice < 0.30:
            await self.engine.read_once()
        elif dice < 0.60:
            self.handle()
        elif dice < 0.74:
            self.commit()
        elif dice < 0.82:
            await self.engine.poll_control(timeout=0)
        elif dice < 0.945:
            await self.lead()
        elif dice < 0.98:
            await self.ask()
        elif dice < 0.993:
            await self.fail_task()
        else:
            await self.crash()
        for _ in range(self.chance.randrange(4)):
            await asyncio.sleep(0)
        for task in list(self.engine.tasks.values()):
            if task.invoker.failure is not None:
                assert isinstance(task.invoker.failure, LogUnavailableError | FencedError), task.invoker.failure
                self.engine._task_manager.reopen(task)

    def handle(self) -> None:
        for task in self._some():
            task.tick(self.clock.now(), self.clock.monotonic())
            if task.ready:
                task.run()

    def commit(self) -> None:
        for task in self._some():
            if not task.committing:
                task.start_commit()

    def _some(self) -> list[Any]:
        running = [task for task in self.engine.tasks.values() if task.invoker.failure is None]
        return [self.chance.choice(running)] if running else []

    async def lead(self) -> None:
        if self.chance.random() < 0.05:
            self.counted["leaders"] += 1
            await self.checkpoints.coordinator.resign()  # another one takes over, and knows only what the log says
        await self.checkpoints.coordinator.step()

    async def ask(self) -> None:
        """The interval has passed."""
        coordinator = self.checkpoints.coordinator
        if coordinator._writer is not None and coordinator.ledger.under_way is None:
            await coordinator._begin("", None)

    async def drain(self) -> None:
        await self.engine.settle()
        for _ in range(200):
            await self.checkpoints.coordinator.step()
            await asyncio.sleep(0)
        await self.engine.settle()

    def on_loop_error(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """No test awaits a failed future: the failure would go unnoticed."""
        self.counted.update(["errors", f"{context['message']}: {context.get('exception')!r}"])

    # -- verdicts ----------------------------------------------------------------------------------------------------
    async def manifests(self) -> list[tuple[Manifest, CheckpointReader]]:
        storage = await self.checkpoints.storage()
        manifests = [storage.manifest(epoch) for epoch in storage.checkpoints()]
        return [(found, CheckpointReader(storage, storage.folder_of_manifest(found), found)) for found in manifests]

    def live(self) -> Counter[tuple[str, str]]:
        return sum((counts_of(task.plan.definition.name, task.store) for task in self.engine.tasks.values()), Counter())

    def restored_from(self, manifest: Manifest, reader: CheckpointReader, directory: Path) -> Counter[tuple[str, str]]:
        """What would be counted in the end by an app that starts from this checkpoint."""
        counts: Counter[tuple[str, str]] = Counter()
        todo: deque[tuple[str, str, int]] = deque()
        for task in manifest.tasks:
            try:
                store = reader.open_store(task, directory / uuid.uuid4().hex)
            except CheckpointDamagedError:
                return Counter()
            counts += counts_of(task.service, store)
            store.close()
            todo += [(task.service, (r.key or b"").decode(), int(r.value or b"0")) for r in reader.in_flight(task)]
            self.counted["in flight"] += task.in_flight_records
            todo += self._from_outside(task.service, task.marker.inputs)
        while todo:
            service, key, hops = todo.popleft()
            counts[service, key] += 1
            if hops:
                todo.append(("b" if service == "a" else "a", key + service, hops - 1))
        return counts

    def _from_outside(self, service: str, inputs: Mapping[str, InputMark]) -> Iterable[tuple[str, str, int]]:
        for name, mark in inputs.items():
            topic, _, number = name.rpartition(":")
            if topic == "src":
                for record in self.log.fetch(TopicPartition(topic, int(number)), 0, 1000)[0]:
                    if record.offset >= mark.position or record.offset in mark.unfinished:
                        yield service, (record.key or b"").decode(), int(record.value or b"0")


def counts_of(service: str, store: Store) -> Counter[tuple[str, str]]:
    return Counter(
        {(service, parse_keyed(key).key.decode()): int(raw) for key, raw in store.scan(*prefix_range(KEYED))}
    )


def expected() -> Counter[tuple[str, str]]:
    counts: Counter[tuple[str, str]] = Counter()
    for number in range(RECORDS):
        key, service = f"r{number}", "a"
        for _ in range(HOPS + 1):
            counts[service, key] += 1
            key, service = key + service, "b" if service == "a" else "a"
    return counts


def soon(chance: random.Random) -> Callable[..., Any]:
    """Instead of a thread: a few turns of the loop, or so many that tasks commit meanwhile."""

    async def later(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        for _ in range(chance.choice((0, 1, 2, 4, 8, 16, 40))):
            await asyncio.sleep(0)
        return function(*arguments, **options)

    return later


async def play(seed: int, directory: Path, monkeypatch: pytest.MonkeyPatch, *, rocks: bool = False) -> World:
    """One world, from beginning to end. Its `counted` says what happened, and how many differences there are."""
    world = World(seed, directory if rocks else None)
    monkeypatch.setattr(MemoryFileSystem, "store", Files())
    monkeypatch.setattr(MemoryFileSystem, "pseudo_dirs", [""])
    monkeypatch.setattr("tidegate.engine.worker.service_reader._READ", 3)
    monkeypatch.setattr("tidegate.checkpoints.coordination.log_trim._trimmed", lambda topic: topic.name in ("t", "u"))
    monkeypatch.setattr("tidegate.checkpoints.coordination.coordinator._TRIM_SECONDS", 0.0)
    monkeypatch.setattr(asyncio, "to_thread", soon(world.chance))
    asyncio.get_running_loop().set_exception_handler(world.on_loop_error)
    await world.start()
    await world.send()
    for _ in range(450):
        await world.step()
    await world.drain()
    want = expected()
    world.counted["trims"] = world.log.trims
    world.counted["live"] += difference(world.live(), want)
    for manifest, reader in await world.manifests():
        world.counted["checkpoints"] += 1
        world.counted["restored"] += difference(world.restored_from(manifest, reader, directory), want)
    await world.engine.close_tasks(commit=False)
    await world.checkpoints.coordinator.resign()
    return world


def difference(found: Counter[tuple[str, str]], want: Counter[tuple[str, str]]) -> int:
    return ((found - want) + (want - found)).total()
