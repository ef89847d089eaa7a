"""App: topics and services, declared. It is a Faust app, too: its timers, crontabs and commands work beside them."""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from types import FunctionType
from typing import Any, overload

from faust.streams import current_event
from faust.types.settings import Settings as FaustSettings

from tidegate.client.remote_actors import AppMessenger
from tidegate.codecs import codec_for
from tidegate.directories import on_kafka
from tidegate.errors import DefinitionError, LogUnavailableError, UsageError
from tidegate.faust_host.app_base import HostedApp
from tidegate.faust_host.topics import Topic, TopicSchema, in_milliseconds, plain_headers
from tidegate.faust_host.validation import (
    KeyBy,
    check_field,
    check_limits,
    check_name,
    check_options,
    check_time,
    check_topic,
    getter,
    key_functions,
    outputs_of,
    snake,
)
from tidegate.functions.definition import ActorSpec, ExecutionSpec, Guarantee
from tidegate.functions.factories import actor_service, class_service, function_service
from tidegate.functions.messages import refuse_in_handlers
from tidegate.functions.policies import DEAD_LETTER, STOP, ErrorPolicy
from tidegate.functions.process import ProcessFunction
from tidegate.functions.service import Service
from tidegate.functions.topics import TopicDefinition
from tidegate.host.host import AppDefinition
from tidegate.keys import encode_key
from tidegate.logs.base import Headers, NewRecord, TopicPartition
from tidegate.settings import Settings
from tidegate.time.clock import Duration, Instant, to_duration, to_instant
from tidegate.time.sources import EventTime, TimeSource
from tidegate.time.watermarks import BoundedOutOfOrderness, WatermarkStrategy

__all__ = ("App", "Topic")

DAY = timedelta(days=1)
_SETTINGS = {item.name for item in dataclasses.fields(Settings)}
_FAUST_OPTIONS = {*FaustSettings.SETTINGS, "monitor", "config_source", "loop", "beacon"}


class App(HostedApp):
    """A named set of topics and keyed services.

    Options that `tidegate config` knows (broker, data, commit_interval, ...) are Tidegate's; all others go to Faust."""

    def __init__(
        self,
        id: str,
        *,
        time: TimeSource | None = None,
        watermark: WatermarkStrategy | None = None,
        **options: Any,
    ) -> None:
        self._tidegate_options = {name: options.pop(name) for name in _SETTINGS & options.keys()}
        self._time, self._watermark = time or EventTime(), watermark or BoundedOutOfOrderness()
        self._declared: dict[str, Topic] = {}
        self.services: dict[str, Service] = {}
        self._messenger = AppMessenger(lambda: self.host)
        check_name("app", id)
        check_time(f"App({id!r}, ...)", time, watermark)
        check_options(id, options, {*_SETTINGS, *_FAUST_OPTIONS})
        super().__init__(id, **options)

    def define(self) -> AppDefinition:
        return AppDefinition(
            id=self._default_options[0],
            services=tuple(service.complete() for service in self.services.values()),
            topics=tuple(topic.definition for topic in self._declared.values()),
            options=self._tidegate_options,
        )

    @property
    def declared_topics(self) -> Mapping[str, Topic]:
        return self._declared

    # -- declarations ------------------------------------------------------------------------------------------------
    @overload
    def topic(
        self,
        name: str,
        /,
        *,
        value_type: Any = None,
        key: KeyBy | None = None,
        key_type: Any = None,
        partitions: int | None = None,
        retention: Duration | None = None,
        retention_bytes: int | None = None,
        compact: bool = False,
        time: TimeSource | None = None,
        watermark: WatermarkStrategy | None = None,
    ) -> Topic: ...

    @overload
    def topic(self, *topics: str, **faust_options: Any) -> Any: ...

    def topic(
        self,
        *topics: str,
        value_type: Any = None,
        key: KeyBy | None = None,
        key_type: Any = None,
        partitions: int | None = None,
        retention: Duration | None = None,
        retention_bytes: int | None = None,
        compact: bool = False,
        time: TimeSource | None = None,
        watermark: WatermarkStrategy | None = None,
        **faust_options: Any,
    ) -> Any:
        """Declare a topic.

        value_type: what its values are; bad ones go the way of the reading service's error policy. key: how a value
        is keyed when it is sent, a function or the name of a field. time, watermark: else the app's. retention: how
        long records are kept (seconds or a timedelta; 0: for ever), else the setting. compact: keep the last record of
        each key instead."""
        self._check_names(topics)
        if len(topics) != 1 or faust_options or self.host.running:
            return self._known_to_faust(topics, faust_options) or super().topic(
                *topics, key_type=key_type, value_type=value_type, partitions=partitions, retention=retention,
                **faust_options,
            )  # fmt: skip
        (name,) = topics
        check_name("topic", name)
        check_time(f"topic {name!r}", time, watermark)
        check_limits(name, partitions, retention, retention_bytes)
        if name in self._declared:
            raise DefinitionError(f"topic {name!r} is declared twice; declare it once and share the object")
        codec = codec_for(Any if value_type is None else value_type)
        check_field(f"topic {name!r} takes its key from", key, codec.type)
        definition = TopicDefinition(
            name=name,
            codec=codec,
            partitions=partitions or 0,
            key=getter(key),
            key_type=str if key_type is None else key_type,
            time=time or self._time,
            watermark=watermark or self._watermark,
            retention_ms=None if retention is None else to_duration(retention),
            retention_bytes=retention_bytes,
            compact=compact,
        )
        topic = Topic(self, definition=definition, topics=topics, partitions=partitions, schema=TopicSchema(definition))
        self._declared[name] = topic
        return topic

    @staticmethod
    def _check_names(names: tuple[object, ...]) -> None:
        for name in names:
            if not isinstance(name, str):
                raise DefinitionError(
                    f"{name!r} is not the name of a topic. If that is what its values are, say value_type=..."
                )

    def _known_to_faust(self, topics: tuple[str, ...], faust_options: Mapping[str, Any]) -> Topic | None:
        """What Faust means by a name: it makes topics for itself, some of them while it runs."""
        internal = faust_options.get("internal", False)
        return self._declared.get(topics[0]) if topics and (internal or self.host.running) else None

    def process(
        self,
        *inputs: Topic,
        to: Topic | Iterable[Topic] | Mapping[str, Topic] = (),
        name: str | None = None,
        key_by: KeyBy | Mapping[Topic, KeyBy] | None = None,
        key_type: Any = None,
        parallelism: int | None = None,
        errors: ErrorPolicy = STOP,
        timeout: Duration | None = None,
        concurrency: int = 1000,
        guarantee: Guarantee = "exactly_once",
        remember: Duration = DAY,
    ) -> Callable[[Any], Service]:
        """Make an async function, or a ProcessFunction class, a keyed service: one actor per key of its input topics.

        to: the topics that it may emit to, the first being the default one; as a mapping, by names of your own.
        key_by: re-key the input, by a function of the value or a field's name. parallelism: how many tasks, whatever
        the topics have; a run keeps what it began with. errors: STOP, SKIP, DEAD_LETTER or retry(...). timeout: how
        long a handler may take. concurrency: how many handlers of a task may wait at the same time. remember: how
        long idempotency keys of messages are known."""
        if any(isinstance(item, FunctionType | type) for item in inputs):
            raise DefinitionError("write @app.process(topic, ...), with the topics that it reads in brackets")
        names = dict(sys._getframe(1).f_locals)  # noqa: SLF001  so that annotations may name what is local to the caller

        def register(handler: Any) -> Service:
            named = type(handler) if isinstance(handler, ProcessFunction) else handler
            label = name or snake(getattr(named, "__name__", ""))
            options = {
                "name": label,
                "inputs": list(zip(self._inputs(label, inputs), key_functions(inputs, key_by), strict=True)),
                "outputs": outputs_of(label, to),
                "key_type": key_type or inputs[0].definition.key_type,
                "errors": errors,
                "execution": ExecutionSpec(
                    parallelism=parallelism,
                    concurrency=concurrency,
                    timeout=None if timeout is None else to_duration(timeout) / 1000,
                    guarantee=guarantee,
                ),
                "actor": ActorSpec(remember_ms=to_duration(remember)),
            }
            return self._register(self._make(handler, names, options))

        return register

    def actor(  # type: ignore[override]
        self,
        handler: str | type[ProcessFunction[Any, Any]] | ProcessFunction[Any, Any],
        *,
        to: Topic | Iterable[Topic] | Mapping[str, Topic] = (),
        name: str | None = None,
        key_type: Any = str,
        errors: ErrorPolicy = DEAD_LETTER,
        timeout: Duration | None = None,
        concurrency: int = 1000,
        partitions: int | None = None,
        remember: Duration = DAY,
    ) -> Service:
        """A keyed service that reads no topic: it is told and asked things, by `service.tell`, `service.ask` and
        `ctx.tell`. One actor per key.

        handler: a name, and then `@service.on(MessageType)` for each type of message; or a ProcessFunction with methods
        marked by `@tidegate.on(MessageType)`. partitions: how many tasks share the work. remember: how long idempotency
        keys are known. The rest is as for `process`, but a message that fails does not stop the worker unless you say
        so: it goes to the dead letters, and whoever asked gets the error."""
        names = dict(sys._getframe(1).f_locals)  # noqa: SLF001  so that annotations may name what is local to the caller
        kind = handler if isinstance(handler, type) else type(handler)
        label = name or (handler if isinstance(handler, str) else snake(kind.__name__))
        self._check_label(label)
        options = {
            "name": label,
            "outputs": outputs_of(label, to),
            "key_type": key_type,
            "errors": errors,
            "execution": ExecutionSpec(
                concurrency=concurrency, timeout=None if timeout is None else to_duration(timeout) / 1000
            ),
            "actor": ActorSpec(partitions=partitions or 0, remember_ms=to_duration(remember)),
        }
        if isinstance(handler, str):
            return self._register(actor_service(names, **options))
        return self._register(self._make(handler, names, {**options, "inputs": ()}))

    def _register(self, service: Service) -> Service:
        self.services[service.name] = service
        service.messenger = self._messenger
        return service

    def _inputs(self, label: str, inputs: tuple[Topic, ...]) -> tuple[TopicDefinition, ...]:
        self._check_label(label)
        if not inputs:
            raise DefinitionError(
                f"service {label!r} reads no topic: @app.process(topic, ...). "
                f"One that takes messages only is made by app.actor({label!r})."
            )
        for topic in inputs:
            check_topic(f"service {label!r} reads", topic)
            if isinstance(topic.definition.time, EventTime):
                check_field(
                    f"topic {topic.name!r} takes its time from", topic.definition.time.of, topic.definition.codec.type
                )
        if len(set(inputs)) < len(inputs):
            raise DefinitionError(f"service {label!r}: name the topics that it reads each once")
        return tuple(topic.definition for topic in inputs)

    def _check_label(self, label: str) -> None:
        check_name("service", label)
        if re.match(r"run-\d+(\.|$)", label):
            raise DefinitionError(f"service {label!r}: names that begin with 'run-' and a number belong to Tidegate")
        if label in self.services:
            raise DefinitionError(f"service {label!r} is declared twice; give one of them name=...")

    def _make(self, handler: Any, names: Mapping[str, Any], options: dict[str, Any]) -> Service:
        if isinstance(handler, type):
            if not issubclass(handler, ProcessFunction):
                raise DefinitionError(
                    f"{handler.__qualname__} must derive from ProcessFunction, or be an async function"
                )
            return class_service(handler(), names, **options)
        if isinstance(handler, ProcessFunction):
            return class_service(handler, names, **options)
        return function_service(handler, names, **options)

    # -- at run time -------------------------------------------------------------------------------------------------
    def connected(self) -> AbstractAsyncContextManager[None]:
        """Talk to this app's services from a process that does not run them: `async with app.connected(): await
        service.ask(...)`. Without it, each call connects anew. In a worker it changes nothing."""
        return self._messenger.connected()

    async def send(  # type: ignore[override]
        self,
        channel: Any,
        key: Any = None,
        value: Any = None,
        partition: int | None = None,
        timestamp: Instant | float | None = None,
        headers: Headers | Mapping[str, bytes] | None = None,
        **faust_options: Any,
    ) -> Any:
        """Append one value to a topic. Returns a position after it, when it is durable.

        Within a Faust agent it is Faust's own send, and so is sending what only Faust can (partition=, callback=, ...)
        or to what only Faust has, such as a channel: that returns what can be awaited until the record is there."""
        refuse_in_handlers("send", channel if isinstance(channel, str) else str(getattr(channel, "name", channel)))
        faust_options["partition"] = partition
        faust_options = {name: it for name, it in faust_options.items() if it is not None and it is not False}
        topic = self._channel(channel)
        if not isinstance(topic, Topic):
            return await topic.send(key=key, value=value, timestamp=timestamp, headers=headers, **faust_options)
        if self._sends_by_faust(faust_options):
            return await topic.send_by_faust(
                key=key, value=value, timestamp=timestamp, headers=headers, **faust_options
            )
        records = self._records(topic, [(key, value)], in_milliseconds(timestamp), plain_headers(headers))
        ((source, (record,)),) = records.items()
        async with self.host.gate.together():
            return await self.host.outbox.send(source, record)

    def _channel(self, channel: Any) -> Any:
        return self._declared.get(channel) or super().topic(channel) if isinstance(channel, str) else channel

    def _sends_by_faust(self, faust_options: Mapping[str, Any]) -> bool:
        if self.host.running and not faust_options and current_event() is None:
            return False
        if on_kafka(self.host.settings if self.host.running else self.connect_faust()):
            return True
        if faust_options:
            raise UsageError(f"{', '.join(faust_options)}: only Faust can do this, on a Kafka broker")
        return False

    async def send_many(
        self, topic: Topic, values: Iterable[Any], *, timestamp: Instant | None = None, headers: Headers = ()
    ) -> Mapping[int, int]:
        """Append values, keyed by the topic's own function, in one transaction: all of them or none.

        Returns, for each partition that got some, the position after its last one, when all are durable."""
        refuse_in_handlers("send", topic.name)
        records = self._records(topic, ((None, value) for value in values), timestamp, headers)
        if not records:
            return {}
        async with self.host.gate.together():
            ends = await self.host.outbox.send_together(records)
        return {source.partition: end for source, end in ends.items()}

    def _records(
        self, topic: Topic, keyed: Iterable[tuple[Any, Any]], timestamp: Instant | None, headers: Headers
    ) -> dict[TopicPartition, list[NewRecord]]:
        """By the partitions that they go to."""
        if not self.host.running:
            raise LogUnavailableError(
                f"app {self.define().id!r} is not running, so nothing can be sent to {topic.name!r}"
            )
        definition = self.host.engine.plan.topics[topic.name]
        when = self.host.clock.now() if timestamp is None else to_instant(timestamp)
        records: dict[TopicPartition, list[NewRecord]] = {}
        for key, value in keyed:
            raw = definition.codec.encode(value)  # first: a key function may not know what to do with a wrong type
            key_bytes = encode_key(key) if key is not None else definition.key_of(value)
            target = TopicPartition(topic.name, definition.partition_for(key_bytes or b""))
            records.setdefault(target, []).append((key_bytes, raw, when, headers))
        return records
