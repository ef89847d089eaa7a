"""A log, the worker processes that run on it, and their results. `embedded` and `kafka` choose the log."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from tests.faults.support.processes import WorkerProcess, Zygote
from tests.faults.support.worker import find, renamed
from tidegate import App
from tidegate.engine.topology.plan import Plan
from tidegate.engine.topology.run import FIRST, Run, current_run
from tidegate.logs.base import Log, LogRecord, NewRecord, Reader, TopicPartition, TopicSpec
from tidegate.state.base import StorePosition
from tidegate.state.layout import PROCESSING, TIMER, unpack_due
from tidegate.state.rocksdb import RocksStore

__all__ = ("EAGER", "KILLED", "Picture", "StoreCopy", "World", "random_seed", "read_all")

T = TypeVar("T")
KILLED = -9
"""The status of a process that SIGKILL ended."""
EAGER = {
    "TIDEGATE_COMMIT_INTERVAL": "0.004",
    "TIDEGATE_COMMIT_CHANGES": "12",
    "TIDEGATE_SLICE_MS": "0.1",
    "TIDEGATE_BUFFER_RECORDS": "200",
    "TIDEGATE_FLUSH_SECONDS": "0.05",
    "TIDEGATE_DEBUG": "1",
}
"""Many small commits and flushes, so that a fault finds all of them under way."""


@dataclass(frozen=True, kw_only=True)
class StoreCopy:
    """What a local store holds."""

    content: Mapping[bytes, bytes]
    position: StorePosition | None


@dataclass(frozen=True, kw_only=True)
class Picture:
    """The contents of the log and the stores while no worker runs. Topics have the names that the app declares."""

    topics: Mapping[TopicPartition, Sequence[LogRecord]]
    ends: Mapping[TopicPartition, int]
    stores: Mapping[str, Mapping[bytes, bytes]]
    """By the task's id."""
    left: Mapping[str, Sequence[StoreCopy]]
    """By the task's id, the stores that its former owners left behind."""
    plan: Plan
    real: Mapping[str, str]
    """The topics' names in the log."""
    undecided: Sequence[TopicPartition] = ()
    """Where a transaction is left open."""

    def partitions(self, topic: str) -> list[Sequence[LogRecord]]:
        return [records for source, records in sorted(self.topics.items()) if source.topic == topic]

    def values(self, topic: str, kind: type[T]) -> list[T]:
        """The decoded values, partition after partition."""
        return [
            msgspec.json.decode(record.value or b"", type=kind) for part in self.partitions(topic) for record in part
        ]

    def by_key(self, topic: str, kind: type[T]) -> dict[str, list[T]]:
        """The decoded values of each key, in order."""
        found: dict[str, list[T]] = {}
        for part in self.partitions(topic):
            for record in part:
                value = msgspec.json.decode(record.value or b"", type=kind)
                found.setdefault((record.key or b"").decode(), []).append(value)
        return found


class World(ABC):
    prefix = ""
    """Before the names of the app and its topics, where others use the same log."""
    points: Sequence[str]
    """The fault points that a worker passes on this log."""
    flags: Mapping[str, Any] = {}
    """Settings that decide how topics are made."""

    def __init__(self, directory: Path, zygote: Zygote, app: str, seed: int, **environment: str) -> None:
        """`app`: MODULE:NAME."""
        self.directory, self._zygote, self.app, self.seed = directory, zygote, app, seed
        self.environment = {**EAGER, **environment, "TIDEGATE_DATA": str(directory / "data")}
        self.log_options: dict[str, Any] = {}
        self.jumps: list[tuple[float, float]] = []
        """Clock jumps of workers: after how many seconds of a run the clock is off by how many."""
        self.lives: list[WorkerProcess] = []
        self._faults, self._notes = directory / "faults", directory / "notes"
        self._acknowledged = directory / "acknowledged"
        directory.mkdir(parents=True, exist_ok=True)

    @property
    def definition(self) -> App:
        found = find(self.app)
        assert isinstance(found, App)
        return found

    @property
    def data(self) -> Path:
        """Where the app keeps what it keeps on disk."""
        return self.directory / "data" / f"{self.prefix}{self.definition.define().id}"

    @abstractmethod
    def new_log(self) -> Log:
        """A way to the log, not started."""

    @abstractmethod
    def owners(self) -> list[Path]:
        """The directories below which workers keep stores."""

    # -- workers -----------------------------------------------------------------------------------------------------
    def live(
        self, faults: str = "", *, until_end: bool = True, feed: str = "", environment: Mapping[str, str] | None = None
    ) -> WorkerProcess:
        """Start a worker."""
        arguments = {
            "app": self.app,
            "prefix": self.prefix,
            "until_end": until_end,
            "feed": feed,
            "log": self.log_options,
            "jumps": self.jumps,
        }
        return self._start(arguments, {**(environment or {}), "TIDEGATE_FAULTS": faults})

    def _start(self, arguments: Mapping[str, Any], environment: Mapping[str, str]) -> WorkerProcess:
        variables = {
            **self.environment,
            "TIDEGATE_FAULTS": "",
            **environment,
            "TIDEGATE_FAULTS_LOG": str(self._faults),
            "TIDEGATE_TEST_NOTES": str(self._notes),
            "TIDEGATE_TEST_ACKNOWLEDGED": str(self._acknowledged),
        }
        life = self._zygote.start(arguments, variables, self.directory / f"life-{len(self.lives) + 1}.txt")
        self.lives.append(life)
        return life

    def command(self, *arguments: str) -> WorkerProcess:
        """Run another command than `worker` to its end; it must succeed."""
        life = self._start({"app": self.app, "command": arguments}, {})
        status = life.wait()
        assert status == 0, self.with_seed(f"{' '.join(arguments)} ended with {status}: {life.output}")
        return life

    def suffer(self, faults: str, **options: Any) -> WorkerProcess:
        """Run a worker with faults of which one must kill it."""
        struck = sum(self.struck.values())
        life = self.live(faults, **options)
        status = life.wait()
        assert status == KILLED, self.with_seed(
            f"{faults} did not kill the worker, it ended with {status}: {life.output}"
        )
        assert sum(self.struck.values()) > struck, self.with_seed(f"{faults} did not strike")
        return life

    def fail(self, faults: str = "", *, error: str, **options: Any) -> WorkerProcess:
        """Run a worker that must stop by itself with the given error."""
        life = self.live(faults, **options)
        status = life.wait()
        assert status == 1, self.with_seed(f"the worker should have failed, it ended with {status}: {life.output}")
        assert error in life.output, self.with_seed(f"the worker failed for another reason: {life.output}")
        return life

    def drain(self, **environment: str) -> WorkerProcess:
        """Run a worker without faults to the end of everything. Timers that go by the clock may take another one: a
        bounded run does not wait for those that are not due."""
        for _ in range(20):
            life = self.live(environment=environment)
            status = life.wait()
            assert status == 0, self.with_seed(f"a worker without faults ended with {status}: {life.output}")
            if not self._clock_is_set():
                return life
            time.sleep(0.02)
        raise AssertionError(self.with_seed("timers that go by the clock do not fire"))

    def _clock_is_set(self) -> bool:
        tasks = {(path.parent.name, int(path.name)) for owner in self.owners() for path in owner.glob("*/*")}
        for newest in (self.copies(*task)[0].content for task in tasks):
            if any(unpack_due(value)[0] == PROCESSING for key, value in newest.items() if key[:1] == TIMER):
                return True
        return False

    def end(self) -> None:
        """No process is left behind, however the test went."""
        for life in self.lives:
            life.kill()

    @property
    def struck(self) -> Counter[str]:
        """How often each fault did strike, as `point:action`."""
        lines = self._faults.read_text().splitlines() if self._faults.exists() else []
        return Counter(line.partition("@")[0] for line in lines)

    @property
    def notes(self) -> list[str]:
        """Notes that handlers of all workers wrote for the test."""
        return self._notes.read_text().splitlines() if self._notes.exists() else []

    @property
    def acknowledged(self) -> list[str]:
        """Sends of all workers that the log has acknowledged."""
        return self._acknowledged.read_text().splitlines() if self._acknowledged.exists() else []

    def with_seed(self, message: str) -> str:
        """A failure's message with the seed and faults that reproduce it."""
        return f"{message}\n(TIDEGATE_SEED={self.seed}, app {self.app}, faults {dict(self.struck)})"

    # -- the log -----------------------------------------------------------------------------------------------------
    def with_log(self, use: Callable[[Log, Plan], Coroutine[Any, Any, T]]) -> T:
        """An embedded log has one owner at a time: there this is for when no worker runs."""

        async def run() -> T:
            log = self.new_log()
            await log.start()
            try:
                current = await current_run(log, f"{self.prefix}{self.definition.define().id}")
                return await use(log, self._plan(await log.topics(), run=current))
            finally:
                await log.stop()

        return asyncio.run(run())

    def _plan(self, existing: Mapping[str, TopicSpec], prefix: str | None = None, run: Run = FIRST) -> Plan:
        definition = renamed(self.definition.define(), self.prefix if prefix is None else prefix)
        settings = definition.resolve(self.flags).settings
        return Plan(definition.id, definition.services, definition.topics, settings, existing, run)

    def _shown(self, name: str) -> str:
        return name.replace(self.prefix, "") if self.prefix else name

    def real_name(self, plan: Plan, name: str) -> str:
        return next(spec.name for spec in plan.specs if self._shown(spec.name) == name)

    def append(self, topic: str, values: Iterable[msgspec.Struct], batch: int = 50) -> None:
        """Append values as a sender would, a few in each transaction."""
        codec, definition = msgspec.json.Encoder(), self.definition.topics[topic].definition
        rows = [(definition.key_of(value), codec.encode(value)) for value in values]
        self.append_raw(topic, [(key, value, None) for key, value in rows], batch)

    def append_raw(
        self, topic: str, rows: Sequence[tuple[bytes | None, bytes | None, int | None]], batch: int = 50
    ) -> None:
        """Append keys and values as they are; the partition is the key's unless it is named."""

        async def use(log: Log, plan: Plan) -> None:
            await log.create(plan.specs)
            real = self.real_name(plan, topic)
            writer = await log.writer()
            for start in range(0, len(rows), batch):
                records: dict[TopicPartition, list[NewRecord]] = {}
                for key, value, partition in rows[start : start + batch]:
                    place = plan.topics[real].partition_for(key or b"") if partition is None else partition
                    records.setdefault(TopicPartition(real, place), []).append((key, value, 0, ()))
                await writer.append(records)

        self.with_log(use)

    def place_of(self, topic: str, key: str) -> int:
        """The partition of a key."""
        return self.with_log(
            lambda log, plan: _now(plan.topics[self.real_name(plan, topic)].partition_for(key.encode())),
        )

    def look(self) -> Picture:
        """Everything that is in the log and in the stores."""

        async def use(log: Log, plan: Plan) -> Picture:
            real = {self._shown(spec.name): spec.name for spec in plan.specs}
            sources = [TopicPartition(spec.name, n) for spec in plan.specs for n in range(spec.partitions)]
            undecided = await self.undecided(log, sources)
            topics, ends = await self.read(log, sources), await log.end_offsets(sources)
            shown = {source: TopicPartition(self._shown(source.topic), source.partition) for source in sources}
            existing = {self._shown(name): spec for name, spec in (await log.topics()).items() if name in real.values()}
            stores = {self._shown(task.id): self.copies(task.definition.name, task.number) for task in plan.tasks}
            return Picture(
                topics={shown[source]: records for source, records in topics.items()},
                ends={shown[source]: end for source, end in ends.items()},
                stores={task: copies[0].content if copies else {} for task, copies in stores.items()},
                left={task: copies[1:] for task, copies in stores.items()},
                plan=self._plan(existing, prefix="", run=plan.run),
                real=real,
                undecided=undecided,
            )

        return self.with_log(use)

    async def read(self, log: Log, sources: Sequence[TopicPartition]) -> Mapping[TopicPartition, Sequence[LogRecord]]:
        """The committed records of these partitions."""
        return await read_all(log, sources)

    async def undecided(self, log: Log, sources: Sequence[TopicPartition]) -> list[TopicPartition]:
        """The partitions with an open transaction. A log inside one process has none."""
        return []

    def observed(self, topic: str) -> int:
        """How many records of a topic are committed, seen from beside a worker that runs."""
        return sum(map(len, self.topics(topic)))

    def topics(self, name: str) -> list[Sequence[LogRecord]]:
        """The records of one topic, by partition."""

        async def use(log: Log, plan: Plan) -> list[Sequence[LogRecord]]:
            real = self.real_name(plan, name)
            sources = [TopicPartition(real, number) for number in range((await log.topics())[real].partitions)]
            found = await self.read(log, sources)
            return [found[source] for source in sources]

        return self.with_log(use)

    def recreate(self, name: str) -> None:
        """Delete a topic and create it again, empty."""

        async def use(log: Log, plan: Plan) -> None:
            spec = (await log.topics())[self.real_name(plan, name)]
            await log.delete([spec.name])
            await log.create([spec])

        self.with_log(use)

    # -- local stores, while no worker runs --------------------------------------------------------------------------
    def stores_of(self, service: str, number: int) -> list[Path]:
        """Of all owners that a task had here."""
        found = [owner / service / str(number) for owner in self.owners()]
        return [path for path in found if path.exists()]

    def store_of(self, service: str, number: int) -> Path:
        """Of a task that had one owner only."""
        (path,) = self.stores_of(service, number)
        return path

    def lose_stores(self) -> None:
        """As if every worker came to another machine."""
        for owner in self.owners():
            shutil.rmtree(owner)

    def copies(self, service: str, number: int) -> list[StoreCopy]:
        """What a task's owners have of it, the newest first."""
        copies = []
        for path in self.stores_of(service, number):
            store = RocksStore(path)
            copies.append(StoreCopy(content=dict(store.scan(b"\x01", b"\xff")), position=store.position))
            store.close()
        return sorted(copies, key=lambda copy: copy.position.offset if copy.position else -1, reverse=True)


async def _now(value: T) -> T:
    return value


class Readable(Protocol):
    """As much of a log as one needs to read it."""

    async def start_offsets(self, sources: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]: ...

    async def end_offsets(self, sources: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]: ...

    def reader(self) -> Reader: ...


async def read_all(log: Readable, sources: Sequence[TopicPartition]) -> dict[TopicPartition, list[LogRecord]]:
    """The committed records of these partitions."""
    starts, ends = await log.start_offsets(sources), await log.end_offsets(sources)
    records: dict[TopicPartition, list[LogRecord]] = {source: [] for source in sources}
    reader = log.reader()
    reader.assign(starts)
    while any(reader.position(source) < end for source, end in ends.items()):
        for found in await reader.read(timeout=1):
            records[found.source] += [record for record in found.records if record.offset < ends[found.source]]
    await reader.close()
    return records


def random_seed() -> int:
    given = os.environ.get("TIDEGATE_SEED")
    return int(given) if given else int.from_bytes(os.urandom(4), "big")
