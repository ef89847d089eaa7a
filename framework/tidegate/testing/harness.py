"""Drives an app, or some of its services, in memory: no broker, no disk, no sleeps, and a clock that tests move.

    with AppHarness(app) as harness:
        harness.send(likes, Like(...))
        assert harness.outputs(matches) == [Match(...)]
        harness.advance(days=30)
        assert harness.state(matchmaker, "pair", "ann|bob") is None

After each call everything is settled: read, handled, committed, and passed on from service to service. Handlers that
really wait (an HTTP call) are waited for. With `settle=False` a call does its own part only; `settle` does the rest.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Coroutine, Iterable
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from tidegate.engine.plan import Plan, dead_letter_topic
from tidegate.engine.stores import Stores
from tidegate.engine.task import Task
from tidegate.engine.worker import Engine
from tidegate.errors import UnknownNameError, UsageError
from tidegate.functions.context import Timer
from tidegate.functions.service import Service, ServiceDefinition
from tidegate.functions.topics import TopicDefinition
from tidegate.host import AppDefinition
from tidegate.keys import decode_key, encode_key
from tidegate.logs.base import Headers, LogRecord, NewRecord, Records, TopicPartition
from tidegate.query.pages import Entry
from tidegate.query.views import ServiceView, TaskView
from tidegate.settings import Settings, resolve
from tidegate.state.layout import EVENT, unpack_due
from tidegate.testing.log import MemoryLog
from tidegate.testing.records import DeadLetter, SentRecord, dead_letter, sent_record
from tidegate.time.clock import MAX_TIME, Instant, ManualClock, to_instant

__all__ = ("AppHarness",)

T = TypeVar("T")
TopicName = Any
"""A topic of the app, or its name."""
ServiceName = Service | str


class Definable(Protocol):
    """An App, as far as the harness needs it."""

    def define(self) -> AppDefinition: ...


class AppHarness:
    """See the module. Use it in a plain test function: it runs an event loop of its own."""

    log: MemoryLog
    engine: Engine

    def __init__(
        self,
        app: Definable,
        *,
        services: Iterable[ServiceName] | None = None,
        partitions: int | None = None,
        now: Instant = 1_700_000_000_000,
        directory: Path | None = None,
        patience: float = 10.0,
        **settings: Any,
    ) -> None:
        """services: only these; what they read from others is then sent by the test. partitions: of topics that do not
        say how many they want; one unless the app has a setting. now: where the clock starts. directory: keep state in
        RocksDB there, instead of in memory. patience: seconds to wait for handlers before giving up. settings: those of
        an App, with which the test overrides the app's own."""
        definition = app.define()
        self._definition = definition
        self._services = _chosen(definition, services)
        self._directory, self._patience = directory, patience
        self._settings = _settings(definition, partitions, directory, settings)
        self.clock = ManualClock(now)
        self._cursors: dict[str, dict[int, int]] = {}
        self._runner: asyncio.Runner | None = None

    def __enter__(self) -> Self:
        if _in_event_loop():
            raise UsageError("AppHarness runs an event loop of its own: use it in a plain function, not an async one")
        self._runner = asyncio.Runner()
        self.log = MemoryLog(clock=self.clock.now)
        try:
            self.run(self._open())
            self.settle()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    # -- events ------------------------------------------------------------------------------------------------------
    def send(
        self,
        topic: TopicName,
        value: Any,
        *,
        key: Any = None,
        timestamp: Instant | None = None,
        headers: Headers = (),
        settle: bool = True,
    ) -> None:
        """Append a value. key: else the topic's own function says. timestamp: else the clock's."""
        definition = self._topic(topic)
        raw = definition.codec.encode(value)  # first: a key function may not know what to do with a wrong type
        key_bytes = encode_key(key) if key is not None else definition.key_of(value)
        self.send_raw(topic, key=key_bytes, value=raw, timestamp=timestamp, headers=headers, settle=settle)

    def send_many(
        self,
        topic: TopicName,
        values: Iterable[Any],
        *,
        key: Callable[[Any], Any] | None = None,
        timestamp: Instant | None = None,
        settle: bool = True,
    ) -> None:
        """Append values in one transaction. key: from a value to its key, else the topic's own function."""
        definition = self._topic(topic)
        when = self.clock.now() if timestamp is None else to_instant(timestamp)
        records: dict[TopicPartition, list[NewRecord]] = {}
        for value in values:
            raw = definition.codec.encode(value)
            key_bytes = encode_key(key(value)) if key is not None else definition.key_of(value)
            target = TopicPartition(definition.name, definition.partition_for(key_bytes or b""))
            records.setdefault(target, []).append((key_bytes, raw, when, ()))
        self.run(self._append(records))
        if settle:
            self.settle()

    def send_raw(
        self,
        topic: TopicName,
        *,
        key: bytes | None = None,
        value: bytes | None = None,
        timestamp: Instant | None = None,
        headers: Headers = (),
        partition: int | None = None,
        settle: bool = True,
    ) -> None:
        """Append bytes as they are: input that is broken, has no key, or lies in the wrong partition."""
        definition = self._topic(topic)
        number = definition.partition_for(key or b"") if partition is None else partition
        when = self.clock.now() if timestamp is None else to_instant(timestamp)
        target = TopicPartition(definition.name, number)
        self.run(self._append({target: [(key, value, when, tuple(headers))]}))
        if settle:
            self.settle()

    async def _append(self, records: Records) -> None:
        writer = await self.log.writer()
        await writer.append(records)
        await writer.close()

    # -- time --------------------------------------------------------------------------------------------------------
    def settle(self, *, wait: bool = True, commit: bool = True) -> None:
        """Read, handle, commit and pass on until all is quiet.

        wait: also for handlers that wait themselves; else they stay as they are. commit: else nothing is committed."""
        self.run(self._settle(wait, commit))

    async def _settle(self, wait: bool, commit: bool) -> None:
        limit = asyncio.timeout(self._patience)
        try:
            async with limit:
                await self.engine.settle(wait=wait, commit=commit)
        except TimeoutError:
            if not limit.expired():
                raise
            raise UsageError(
                f"handlers still wait after {self._patience:g} s. What they wait for may be the test itself: "
                f"send with settle=False, then settle(wait=False). Or raise patience=."
            ) from None

    def advance(
        self,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        milliseconds: float = 0,
    ) -> None:
        """Let time pass by the clock, from one timer or repetition that is due to the next: none is skipped."""
        span = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds, milliseconds=milliseconds)
        left = round(span.total_seconds() * 1000)
        if left <= 0:
            raise UsageError("the clock goes forward: advance(days=30). To set it back, use clock.jump and settle")
        while left > 0:
            due = self.engine.next_due()
            step = left if due is None else min(due, left)
            self.clock.advance(timedelta(milliseconds=step))
            left -= step
            self.settle()

    def advance_watermark(self, to: Instant) -> None:
        """Let event time pass: nothing up to this time will come any more from outside."""
        self.engine.advance_watermark(to_instant(to))
        self.settle()

    def finish(self) -> None:
        """Event time comes to its end, as after the last record of a bounded run: every event-time timer fires."""
        self.engine.advance_watermark(MAX_TIME)
        self.settle()

    def watermark(self, service: ServiceName) -> int:
        """How far event time has come in all tasks of a service."""
        return min(task.time.watermark for task in self._tasks(service))

    # -- results -----------------------------------------------------------------------------------------------------
    def outputs(self, topic: TopicName) -> list[Any]:
        """The values committed to a topic since the last call, one partition after the other."""
        name = _name(topic)
        seen = self._cursors.setdefault(name, {})
        fresh = [record for record in self.records(name) if record.offset >= seen.get(record.partition, 0)]
        seen.update({record.partition: record.offset + 1 for record in fresh})
        return [record.value for record in fresh]

    def records(self, topic: TopicName) -> list[SentRecord]:
        """All committed records of a topic, one partition after the other."""
        name = _name(topic)
        definition = self.engine.plan.topics.get(name)
        return [sent_record(definition, number, record) for number, record in self._read(name)]

    def dead_letters(self, service: ServiceName) -> list[DeadLetter]:
        """What a service gave up, with the reasons."""
        definition = self._service(service)
        topic = dead_letter_topic(self._definition.id, definition)
        if topic is None:
            raise UsageError(f"service {definition.name!r} has no dead letters: its error policy is another one")
        return [dead_letter(record) for _, record in self._read(topic.name)]

    def state(self, service: ServiceName, name: str, key: Any = None) -> Any:
        """The committed state of a key: a value or None, a list, or a dict, by the kind of the state.

        Without a key: an operator state, all tasks' items together."""
        definition = self._service(service)
        view = self._view(definition)
        declaration = view.declaration(name)
        if declaration.kind == "operator":
            stored = [raw for _, raw in view.items(name) if raw is not None]
            return [item for raw in stored for item in declaration.codec.decode(raw)]
        entries = self.run(_all_entries(view, name, encode_key(key)))
        values = [declaration.codec.decode(entry.value) for entry in entries]
        if declaration.kind == "list":
            return values
        if declaration.kind == "map":
            keys = [decode_key(entry.sub, declaration.key_type) for entry in entries]
            return dict(zip(keys, values, strict=True))
        if declaration.kind == "aggregating":
            return declaration.function.result(values[0]) if values else None
        return values[0] if values else None

    def timers(self, service: ServiceName, key: Any) -> list[Timer]:
        """The committed timers of a key, in the order of their names."""
        page = self.run(self._view(self._service(service)).timers(encode_key(key)))
        return [_timer(entry) for entry in page.entries]

    # -- falling and rising ------------------------------------------------------------------------------------------
    def restart(self) -> None:
        """Stop in order and start again over the same log: what memory held comes back from the changelogs."""
        self.run(self.engine.close_tasks(commit=True))
        self.run(self._open())
        self.settle()

    def crash(self) -> None:
        """Lose all that was not committed, and start again over the same log."""
        self.run(self.engine.close_tasks(commit=False))
        self.run(self._open())
        self.settle()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run something in the harness's event loop, for example what a waiting handler waits for."""
        if self._runner is None:
            coroutine.close()
            raise UsageError("use the harness in a with statement: with AppHarness(app) as harness: ...")
        return self._runner.run(coroutine)

    def call(self, function: Callable[[], T]) -> T:
        """Call something in the harness's event loop."""

        async def calling() -> T:
            return function()

        return self.run(calling())

    # -- parts -------------------------------------------------------------------------------------------------------
    async def _open(self) -> None:
        definition = self._definition
        existing = await self.log.topics()
        plan = Plan(definition.id, self._services, definition.topics, self._settings, existing)
        stores = Stores(self._directory, self._settings)
        self.engine = Engine(plan, self.log, stores, self._settings, clock=self.clock)
        await self.engine.start()

    def _close(self) -> None:
        runner, self._runner = self._runner, None
        if runner is None:
            return
        try:
            if hasattr(self, "engine"):
                runner.run(self.engine.close_tasks(commit=False))
        finally:
            runner.close()

    def _topic(self, topic: TopicName) -> TopicDefinition:
        name, known = _name(topic), self.engine.plan.topics
        if name not in known:
            raise UnknownNameError("topic", name, known)
        return known[name]

    def _service(self, service: ServiceName) -> ServiceDefinition:
        name, known = service if isinstance(service, str) else service.name, self.engine.plan.services
        if name not in known:
            raise UnknownNameError("service", name, known)
        return known[name]

    def _tasks(self, service: ServiceName) -> list[Task]:
        definition = self._service(service)
        return [task for task in self.engine.tasks.values() if task.definition.name == definition.name]

    def _view(self, definition: ServiceDefinition) -> ServiceView:
        tasks = [
            TaskView(number=task.plan.number, store=task.store, watermark=task.time.watermark)
            for task in self._tasks(definition.name)
        ]
        return ServiceView(definition, tasks, self.clock)

    def _read(self, topic: str) -> list[tuple[int, LogRecord]]:
        return self.run(_all_records(self.log, topic))


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _settings(
    definition: AppDefinition, partitions: int | None, directory: Path | None, settings: dict[str, Any]
) -> Settings:
    """The app's own, without the environment's; time is passed on at once."""
    chosen = {"partitions": partitions, "store": "memory" if directory is None else "rocksdb", **settings}
    resolved = resolve({"partitions": 1, **definition.options}, chosen, {}).settings
    return dataclasses.replace(resolved, progress_interval=0.0)


def _chosen(definition: AppDefinition, services: Iterable[ServiceName] | None) -> tuple[ServiceDefinition, ...]:
    if services is None:
        return definition.services
    known = {service.name: service for service in definition.services}
    names = [service if isinstance(service, str) else service.name for service in services]
    for name in names:
        if name not in known:
            raise UnknownNameError("service", name, known)
    return tuple(known[name] for name in names)


def _name(topic: TopicName) -> str:
    return topic if isinstance(topic, str) else str(topic.name)


def _timer(entry: Entry) -> Timer:
    domain, at = unpack_due(entry.value)
    return Timer(name=entry.sub.decode(), at=at, time="event" if domain == EVENT else "processing")


async def _all_entries(view: ServiceView, state: str, key: bytes) -> list[Entry]:
    entries: list[Entry] = []
    after: bytes | None = b""
    while after is not None:
        page = await view.entries(state, key=key, after=after)
        entries += page.entries
        after = page.after
    return entries


async def _all_records(log: MemoryLog, topic: str) -> list[tuple[int, LogRecord]]:
    known = await log.topics()
    if topic not in known:
        raise UnknownNameError("topic", topic, known)
    sources = [TopicPartition(topic, number) for number in range(known[topic].partitions)]
    reader = log.reader()
    reader.assign(await log.start_offsets(sources))
    found: dict[int, list[LogRecord]] = {source.partition: [] for source in sources}
    while batches := await reader.read(max_records=100_000):
        for batch in batches:
            found[batch.source.partition] += batch.records
    await reader.close()
    return [(number, record) for number, records in found.items() for record in records]
