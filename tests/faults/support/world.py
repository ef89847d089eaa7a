"""One data directory, the lives that workers lead in it, and what they leave behind."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from tests.faults.support.processes import Life, Zygote
from tests.faults.support.worker import find
from tidegate import App
from tidegate.engine.plan import Plan
from tidegate.logs.base import LogRecord, NewRecord, TopicPartition
from tidegate.logs.embedded import EmbeddedLog, LogObserver
from tidegate.state.layout import PROCESSING, TIMER, prefix_range, unpack_due
from tidegate.state.rocksdb import RocksStore

__all__ = ("KILLED", "Picture", "World")

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
class Picture:
    """The content of a data directory while no worker runs."""

    topics: Mapping[TopicPartition, Sequence[LogRecord]]
    ends: Mapping[TopicPartition, int]
    stores: Mapping[str, Mapping[bytes, bytes]]
    """By the task's id."""
    plan: Plan

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


class World:
    def __init__(self, directory: Path, zygote: Zygote, app: str, seed: int, **environment: str) -> None:
        """`app`: MODULE:NAME."""
        self.directory, self._zygote, self.app, self.seed = directory, zygote, app, seed
        self.environment = {**EAGER, **environment, "TIDEGATE_DATA": str(directory / "data")}
        self.log_options: dict[str, Any] = {}
        self.lives: list[Life] = []
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
        """Where the app keeps its log and, below `stores`, its state."""
        return self.directory / "data" / self.definition.define().id

    # -- lives -------------------------------------------------------------------------------------------------------
    def live(
        self, faults: str = "", *, until_end: bool = True, feed: str = "", environment: Mapping[str, str] | None = None
    ) -> Life:
        """Start a worker."""
        arguments = {"app": self.app, "until_end": until_end, "feed": feed, "log": self.log_options}
        variables = {
            **self.environment,
            **(environment or {}),
            "TIDEGATE_FAULTS": faults,
            "TIDEGATE_FAULTS_LOG": str(self._faults),
            "TIDEGATE_TEST_NOTES": str(self._notes),
            "TIDEGATE_TEST_ACKNOWLEDGED": str(self._acknowledged),
        }
        life = self._zygote.start(arguments, variables, self.directory / f"life-{len(self.lives) + 1}.txt")
        self.lives.append(life)
        return life

    def suffer(self, faults: str, **options: Any) -> Life:
        """Run a worker into faults of which one kills it; they must strike."""
        struck = sum(self.struck.values())
        life = self.live(faults, **options)
        status = life.wait()
        assert status == KILLED, self.told(f"{faults} did not kill the worker, it ended with {status}: {life.output}")
        assert sum(self.struck.values()) > struck, self.told(f"{faults} did not strike")
        return life

    def fail(self, faults: str = "", *, saying: str, **options: Any) -> Life:
        """Run a worker that must stop by itself, with an error that says so."""
        life = self.live(faults, **options)
        status = life.wait()
        assert status == 1, self.told(f"the worker should have failed, it ended with {status}: {life.output}")
        assert saying in life.output, self.told(f"the worker failed for another reason: {life.output}")
        return life

    def drain(self, **environment: str) -> Life:
        """Run a worker without faults to the end of everything. Timers that go by the clock may take another one: a
        bounded run does not wait for those that are not due."""
        for _ in range(20):
            life = self.live(environment=environment)
            status = life.wait()
            assert status == 0, self.told(f"a worker without faults ended with {status}: {life.output}")
            if not self._clock_is_set():
                return life
            time.sleep(0.02)
        raise AssertionError(self.told("timers that go by the clock do not fire"))

    def _clock_is_set(self) -> bool:
        for directory in (self.data / "stores").glob("*/*"):
            store = RocksStore(directory)
            values = [value for _, value in store.scan(*prefix_range(TIMER))]
            store.close()
            if any(unpack_due(value)[0] == PROCESSING for value in values):
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
        """What handlers told the test, in all lives."""
        return self._notes.read_text().splitlines() if self._notes.exists() else []

    @property
    def acknowledged(self) -> list[str]:
        """What senders know to be in the log, in all lives."""
        return self._acknowledged.read_text().splitlines() if self._acknowledged.exists() else []

    def told(self, message: str) -> str:
        """A failure's message, with what is needed to see it again."""
        return f"{message}\n(TIDEGATE_SEED={self.seed}, app {self.app}, faults {dict(self.struck)})"

    # -- the log, while no worker runs -------------------------------------------------------------------------------
    def with_log(self, use: Callable[[EmbeddedLog, Plan], Coroutine[Any, Any, T]]) -> T:
        async def run() -> T:
            log = EmbeddedLog(self.data)
            await log.start()
            try:
                definition = self.definition.define()
                settings = definition.resolve().settings
                plan = Plan(definition.id, definition.services, definition.topics, settings, await log.topics())
                return await use(log, plan)
            finally:
                await log.stop()

        return asyncio.run(run())

    def append(self, topic: str, values: Iterable[msgspec.Struct], batch: int = 50) -> None:
        """Append values as a sender would, a few in each transaction."""
        codec, definition = msgspec.json.Encoder(), self.definition.declared_topics[topic].definition
        rows = [(definition.key_of(value), codec.encode(value)) for value in values]
        self.append_raw(topic, [(key, value, None) for key, value in rows], batch)

    def append_raw(
        self, topic: str, rows: Sequence[tuple[bytes | None, bytes | None, int | None]], batch: int = 50
    ) -> None:
        """Append keys and values as they are; the partition is the key's unless it is named."""

        async def use(log: EmbeddedLog, plan: Plan) -> None:
            await log.create(plan.specs)
            writer = await log.writer()
            for start in range(0, len(rows), batch):
                records: dict[TopicPartition, list[NewRecord]] = {}
                for key, value, partition in rows[start : start + batch]:
                    place = plan.topics[topic].partition_for(key or b"") if partition is None else partition
                    records.setdefault(TopicPartition(topic, place), []).append((key, value, 0, ()))
                await writer.append(records)

        self.with_log(use)

    def place_of(self, topic: str, key: str) -> int:
        """The partition of a key."""
        return self.with_log(lambda log, plan: _now(plan.topics[topic].partition_for(key.encode())))

    def look(self) -> Picture:
        """Everything that is in the log and in the stores."""

        async def use(log: EmbeddedLog, plan: Plan) -> Picture:
            sources = [TopicPartition(spec.name, n) for spec in plan.specs for n in range(spec.partitions)]
            topics = {source: await _read(log, source) for source in sources}
            ends = await log.end_offsets(sources)
            return Picture(topics=topics, ends=ends, stores=self._stores(plan), plan=plan)

        return self.with_log(use)

    def observed(self, topic: str) -> int:
        """How many records of a topic are committed, seen from beside a worker that runs."""

        async def look() -> int:
            observer = LogObserver(self.data)
            await observer.start()
            try:
                sources = [TopicPartition(topic, n) for n in range((await observer.topics())[topic].partitions)]
                return sum([len(await _read(observer, source)) for source in sources])
            finally:
                await observer.stop()

        return asyncio.run(look())

    def topics(self, name: str) -> list[Sequence[LogRecord]]:
        """The records of one topic, by partition."""

        async def use(log: EmbeddedLog, plan: Plan) -> list[Sequence[LogRecord]]:
            partitions = (await log.topics())[name].partitions
            return [await _read(log, TopicPartition(name, number)) for number in range(partitions)]

        return self.with_log(use)

    def clean(self) -> None:
        """Compact all that can be compacted."""

        async def use(log: EmbeddedLog, plan: Plan) -> None:
            await log.clean()

        self.with_log(use)

    def recreate(self, name: str) -> None:
        """Delete a topic and create it anew, empty."""

        async def use(log: EmbeddedLog, plan: Plan) -> None:
            spec = (await log.topics())[name]
            await log.delete([name])
            await log.create([spec])

        self.with_log(use)

    def _stores(self, plan: Plan) -> dict[str, dict[bytes, bytes]]:
        stores = {}
        for task in plan.tasks:
            store = RocksStore(self.store_of(task.definition.name, task.number))
            stores[task.id] = dict(store.scan(b"\x01", b"\xff"))
            store.close()
        return stores

    def put_stores_on(self, directory: Path) -> None:
        """Move the stores to another file system."""
        shutil.move(self.data / "stores", directory / "stores")
        (self.data / "stores").symlink_to(directory / "stores")

    def store_of(self, service: str, number: int) -> Path:
        return self.data / "stores" / service / str(number)


async def _now(value: T) -> T:
    return value


async def _read(log: EmbeddedLog | LogObserver, source: TopicPartition) -> list[LogRecord]:
    reader = log.reader()
    starts, ends = await log.start_offsets([source]), await log.end_offsets([source])
    reader.assign({source: starts[source]})
    records: list[LogRecord] = []
    while reader.position(source) < ends[source]:
        for found in await reader.read(timeout=0):
            records += found.records
    await reader.close()
    return records


def random_seed() -> int:
    given = os.environ.get("TIDEGATE_SEED")
    return int(given) if given else int.from_bytes(os.urandom(4), "big")
