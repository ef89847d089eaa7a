"""Runs an app, or some of its services, in memory: no broker, no disk, no sleeps, and a manual clock.

    with AppHarness(app) as harness:
        harness.send(likes, Like(...))
        assert harness.outputs(matches) == [Match(...)]
        harness.advance(days=30)
        assert harness.state(matchmaker, "pair", "ann|bob") is None

Each call settles the app: records are read, handled, committed, and passed on from service to service. Handlers that
really wait (for an HTTP call) are awaited. With `settle=False` a call only appends; `settle` does the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar, overload

from tidegate.engine.formats.actor_message import ReplyAddress, read_actor_message, read_reply, reply_id
from tidegate.engine.task import Task
from tidegate.engine.topology.plan import dead_letter_topic
from tidegate.errors import ActorError, AskTimeoutError, UnknownNameError, UsageError
from tidegate.functions.context import Timer
from tidegate.functions.declaration.references import TopicReference
from tidegate.functions.definition import ServiceDefinition
from tidegate.functions.messages import MessageDefinition, OutgoingMessage, Request
from tidegate.functions.topics import TopicDefinition
from tidegate.host.actor_client import compose
from tidegate.keys import decode_key, encode_key
from tidegate.logs.base import Headers, LogRecord, NewRecord, Records, TopicPartition
from tidegate.query.views import ServiceView, TaskView
from tidegate.testing.driven_app import Definable, DrivenApp
from tidegate.testing.helpers import (
    ServiceName,
    TopicName,
    all_entries,
    all_records,
    chosen,
    harness_settings,
    timer_of,
    topic_name,
)
from tidegate.testing.records import DeadLetter, SentRecord, dead_letter, sent_record
from tidegate.time.clock import MAX_TIME, Instant, to_instant

__all__ = ("AppHarness",)

T = TypeVar("T")
K = TypeVar("K")
R = TypeVar("R")


class AppHarness(DrivenApp):
    """See the module. Use it in a plain test function: it runs an event loop of its own."""

    def __init__(
        self,
        app: Definable,
        *,
        services: Iterable[ServiceName] | None = None,
        partitions: int | None = None,
        now: Instant = 1_700_000_000_000,
        directory: Path | None = None,
        checkpoints: Path | str | None = None,
        patience: float = 10.0,
        **settings: Any,
    ) -> None:
        """services: run only these; the test sends what they read from others. partitions: of topics that declare no
        number; 1 unless the app has the setting. now: the clock's start. directory: keep state in RocksDB there instead
        of in memory. checkpoints: the storage for `checkpoint`. patience: seconds to wait for suspended handlers.
        settings: as of an App; they override the app's own."""
        definition = app.define()
        super().__init__(
            definition,
            chosen(definition, services),
            harness_settings(definition, partitions, directory, settings),
            now=now,
            directory=directory,
            checkpoints=checkpoints,
            patience=patience,
        )
        self._cursors: dict[str, dict[int, int]] = {}
        self._asked = 0

    # -- events ------------------------------------------------------------------------------------------------------
    @overload
    def send(
        self,
        topic: TopicName[T],
        value: T,
        *,
        key: Any = ...,
        timestamp: Instant | None = ...,
        headers: Headers = ...,
        settle: bool = ...,
    ) -> None: ...

    @overload
    def send(
        self,
        topic: TopicName[Any],
        value: None,
        *,
        key: Any,
        timestamp: Instant | None = ...,
        headers: Headers = ...,
        settle: bool = ...,
    ) -> None: ...

    def send(
        self,
        topic: TopicName[T],
        value: T | None,
        *,
        key: Any = None,
        timestamp: Instant | None = None,
        headers: Headers = (),
        settle: bool = True,
    ) -> None:
        """Append a value; None is a tombstone. key: by default from the topic's key function. timestamp: by default the
        clock's time."""
        definition = self._topic(topic)
        raw = definition.encode(value)  # first: the key function may fail on a value of the wrong type
        key_bytes = encode_key(key) if key is not None else definition.key_of(value)
        self.send_raw(topic, key=key_bytes, value=raw, timestamp=timestamp, headers=headers, settle=settle)

    def send_many(
        self,
        topic: TopicName[T],
        values: Iterable[T],
        *,
        key: Callable[[T], Any] | None = None,
        timestamp: Instant | None = None,
        settle: bool = True,
    ) -> None:
        """Append values in one transaction. key: a function from a value to its key; by default the topic's own."""
        definition = self._topic(topic)
        when = self.clock.now() if timestamp is None else to_instant(timestamp)
        records: dict[TopicPartition, list[NewRecord]] = {}
        for value in values:
            raw = definition.encode(value)
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
        """Append bytes as they are: invalid values, records without a key, or in the wrong partition."""
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

    # -- messages ----------------------------------------------------------------------------------------------------
    def tell(
        self,
        service: ServiceName[K],
        key: K,
        message: Any,
        *,
        idempotency_key: str | None = None,
        timestamp: Instant | None = None,
        headers: Headers = (),
        settle: bool = True,
    ) -> None:
        """Put a message into the mailbox of the actor `key`."""
        name = self._service(service).name
        self._post(OutgoingMessage(name, key, message, idempotency_key, timestamp, headers), None)
        if settle:
            self.settle()

    @overload
    def ask(
        self,
        service: ServiceName[K],
        key: K,
        message: Request[R],
        *,
        idempotency_key: str | None = None,
        timestamp: Instant | None = None,
        headers: Headers = (),
    ) -> R: ...

    @overload
    def ask(
        self,
        service: ServiceName[K],
        key: K,
        message: Any,
        *,
        idempotency_key: str | None = None,
        timestamp: Instant | None = None,
        headers: Headers = (),
    ) -> Any: ...

    def ask(
        self,
        service: ServiceName[Any],
        key: Any,
        message: Any,
        *,
        idempotency_key: str | None = None,
        timestamp: Instant | None = None,
        headers: Headers = (),
    ) -> Any:
        """Settle and return the reply. Raises what `Service.ask` raises; AskTimeoutError if there is no reply yet,
        for example because the handler waits for a retry."""
        self._asked += 1
        name, address = self._service(service).name, ReplyAddress(0, "harness", self._asked)
        definition = self._post(OutgoingMessage(name, key, message, idempotency_key, timestamp, headers), address)
        self.settle()
        for _, record in self._read(f"{self._definition.id}.replies"):
            if reply_id(record) == address.id:
                value = read_reply(name, definition, idempotency_key, record)
                if isinstance(value, ActorError):
                    raise value
                return value
        raise AskTimeoutError(name, 0, idempotency_key)

    def _post(self, message: OutgoingMessage, address: ReplyAddress | None) -> MessageDefinition:
        definition, target, record = compose(self.engine.plan, message, self.clock.now(), address)
        self.run(self._append({target: [record]}))
        return definition

    def told(self, service: ServiceName) -> list[tuple[Any, Any]]:
        """All messages sent to a service so far, as pairs of key and message, partition by partition; also of a service
        that this harness does not run."""
        name = service if isinstance(service, str) else service.name
        known = self.engine.plan.mailboxes
        if name not in known:
            raise UnknownNameError("service that takes messages", name, known)
        definition = known[name]
        records = [record for _, record in self._read(f"{self._definition.id}.{name}.mailbox")]
        return [
            (
                decode_key(record.key or b"", definition.key_type),
                read_actor_message(name, definition.messages, record).message,
            )
            for record in records
        ]

    # -- time --------------------------------------------------------------------------------------------------------
    def advance(
        self,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        milliseconds: float = 0,
    ) -> None:
        """Advance the clock, stopping at each timer and retry that falls due."""
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
        """Advance event time: no further input record is expected up to this time."""
        self.engine.advance_watermark(to_instant(to))
        self.settle()

    def finish(self) -> None:
        """Advance event time to its end, as after the last record of a bounded run: every event-time timer fires."""
        self.engine.advance_watermark(MAX_TIME)
        self.settle()

    def watermark(self, service: ServiceName) -> int:
        """The lowest watermark of a service's tasks."""
        return min(task.time.watermark for task in self._tasks(service))

    # -- results -----------------------------------------------------------------------------------------------------
    @overload
    def outputs(self, topic: TopicReference[T]) -> list[T]: ...

    @overload
    def outputs(self, topic: str) -> list[Any]: ...

    def outputs(self, topic: TopicName) -> list[Any]:
        """The values committed to a topic since the last call, partition by partition."""
        name = topic_name(topic)
        seen = self._cursors.setdefault(name, {})
        fresh = [record for record in self.records(name) if record.offset >= seen.get(record.partition, 0)]
        seen.update({record.partition: record.offset + 1 for record in fresh})
        return [record.value for record in fresh]

    def records(self, topic: TopicName) -> list[SentRecord]:
        """All committed records of a topic, partition by partition."""
        name = topic_name(topic)
        definition = self.engine.plan.topics.get(name)
        return [sent_record(definition, number, record) for number, record in self._read(name)]

    def dead_letters(self, service: ServiceName) -> list[DeadLetter]:
        """The dead letters of a service, with the reasons."""
        definition = self._service(service)
        topic = dead_letter_topic(self._definition.id, definition)
        if topic is None:
            raise UsageError(f"service {definition.name!r} has no dead letters: its error policy is not DEAD_LETTER")
        return [dead_letter(record) for _, record in self._read(topic.name)]

    def state(self, service: ServiceName[K], name: str, key: K | None = None) -> Any:
        """The committed state of a key: a value or None, a list, or a dict, by the kind of the state.

        Without a key: an operator state, all tasks' items together."""
        definition = self._service(service)
        view = self._view(definition)
        declaration = view.declaration(name)
        if declaration.kind == "operator":
            stored = [raw for _, raw in view.items(name) if raw is not None]
            return [item for raw in stored for item in declaration.codec.decode(raw)]
        if key is None:
            raise UsageError(
                f"{name!r} is a keyed state. Give the key: harness.state({definition.name}, {name!r}, key)"
            )
        entries = self.run(all_entries(view, name, encode_key(key)))
        values = [declaration.codec.decode(entry.value) for entry in entries]
        if declaration.kind == "list":
            return values
        if declaration.kind == "map":
            keys = [decode_key(entry.sub, declaration.key_type) for entry in entries]
            return dict(zip(keys, values, strict=True))
        if declaration.kind == "aggregating":
            return declaration.function.result(values[0]) if values else None
        return values[0] if values else None

    def timers(self, service: ServiceName[K], key: K) -> list[Timer]:
        """The committed timers of a key, by name."""
        page = self.run(self._view(self._service(service)).timers(encode_key(key)))
        return [timer_of(entry) for entry in page.entries]

    # -- parts -------------------------------------------------------------------------------------------------------
    def _topic(self, topic: TopicName) -> TopicDefinition:
        name, known = topic_name(topic), self.engine.plan.topics
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
        return self.run(all_records(self.log, topic))
