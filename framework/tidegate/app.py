"""App: topics and services, declared. It is a Faust app, too: its timers, crontabs and commands work beside them."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, Literal, TypeVar, cast

import faust
from faust.topics import Topic as FaustTopic

from tidegate.boot import Boot, EngineService
from tidegate.codecs import codec_for
from tidegate.errors import DefinitionError, LogUnavailableError
from tidegate.functions.policies import STOP, ErrorPolicy
from tidegate.functions.process import ProcessFunction
from tidegate.functions.service import Guarantee, Service, class_service, function_service
from tidegate.functions.topics import TopicDefinition
from tidegate.host import AppDefinition, Host
from tidegate.keys import encode_key
from tidegate.logs.base import Headers, NewRecord, TopicPartition
from tidegate.settings import Settings
from tidegate.time.clock import Duration, Instant, to_duration, to_instant
from tidegate.time.sources import EventTime, TimeSource
from tidegate.time.watermarks import BoundedOutOfOrderness, WatermarkStrategy

__all__ = ("App", "Topic")

Decorated = TypeVar("Decorated")
KeyBy = str | Callable[[Any], Any]
_SETTINGS = {item.name for item in dataclasses.fields(Settings)}


class Topic(FaustTopic):
    """A topic of an app. Services read and write it by its `definition`; to Faust it is a Faust topic."""

    definition: TopicDefinition

    @property
    def name(self) -> str:
        return self.definition.name

    async def send(  # type: ignore[override]
        self,
        *,
        value: Any,
        key: Any = None,
        timestamp: Instant | None = None,
        headers: Headers = (),
        **_: Any,
    ) -> int:
        """Append one value, from outside of a service: a timer, a web view. Returns when it is durable."""
        return await cast("App", self.app).send(self, value=value, key=key, timestamp=timestamp, headers=headers)

    async def send_many(
        self, values: Iterable[Any], *, timestamp: Instant | None = None, headers: Headers = ()
    ) -> Mapping[int, int]:
        """Append values in one transaction. See `App.send_many`."""
        return await cast("App", self.app).send_many(self, values, timestamp=timestamp, headers=headers)


class App(faust.App):
    """A named set of topics and keyed services.

    Options that `tidegate config` knows (broker, data, commit_interval, ...) are Tidegate's; all others go to Faust."""

    BootStrategy = Boot

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
        self.host = Host(self.define)
        _check_name("app", id)
        super().__init__(id, **options)

    @cached_property
    def engine_service(self) -> EngineService:
        return EngineService(self, loop=self.loop, beacon=self.beacon)

    def define(self) -> AppDefinition:
        return AppDefinition(
            id=self._default_options[0],
            services=tuple(service.definition for service in self.services.values()),
            topics=tuple(topic.definition for topic in self._declared.values()),
            options=self._tidegate_options,
        )

    @property
    def declared_topics(self) -> Mapping[str, Topic]:
        return self._declared

    async def on_first_start(self) -> None:
        """Faust's own data directories are made only for Faust's own tables."""
        if self.tables:
            await super().on_first_start()

    # -- declarations ------------------------------------------------------------------------------------------------
    def topic(  # type: ignore[override]
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
        long records are kept (seconds or a timedelta), else the setting. compact: keep the last record of each key
        instead."""
        if len(topics) != 1 or "pattern" in faust_options or faust_options.get("internal"):
            return super().topic(
                *topics, key_type=key_type, value_type=value_type, partitions=partitions, retention=retention,
                **faust_options,
            )  # fmt: skip
        (name,) = topics
        _check_name("topic", name)
        if name in self._declared:
            raise DefinitionError(f"topic {name!r} is declared twice; declare it once and share the object")
        topic = Topic(self, topics=topics, partitions=partitions, **faust_options)
        topic.definition = TopicDefinition(
            name=name,
            codec=codec_for(Any if value_type is None else value_type),
            partitions=partitions or 0,
            key=_getter(key),
            key_type=str if key_type is None else key_type,
            time=time or self._time,
            watermark=watermark or self._watermark,
            retention_ms=None if retention is None else to_duration(retention),
            retention_bytes=retention_bytes,
            compact=compact,
        )
        self._declared[name] = topic
        return topic

    def process(
        self,
        *inputs: Topic,
        to: Topic | Iterable[Topic] | Mapping[str, Topic] = (),
        name: str | None = None,
        key_by: KeyBy | Mapping[Topic, KeyBy] | None = None,
        key_type: Any = None,
        errors: ErrorPolicy = STOP,
        timeout: Duration | None = None,
        concurrency: int = 1000,
        guarantee: Guarantee = "exactly_once",
    ) -> Callable[[Any], Service]:
        """Make an async function, or a ProcessFunction class, a keyed service: one actor per key of its input topics.

        to: the topics that it may emit to, the first being the default one; as a mapping, by names of your own.
        key_by: re-key the input, by a function of the value or a field's name. errors: STOP, SKIP, DEAD_LETTER or
        retry(...). timeout: how long a handler may take. concurrency: how many handlers of a task may wait at the
        same time."""
        names = dict(sys._getframe(1).f_locals)  # noqa: SLF001  so that annotations may name what is local to the caller

        def register(handler: Any) -> Service:
            label = name or _snake(handler.__name__ if isinstance(handler, type) else getattr(handler, "__name__", ""))
            options = {
                "name": label,
                "inputs": self._inputs(label, inputs),
                "outputs": _outputs(label, to),
                "key_by": _key_functions(inputs, key_by),
                "key_type": key_type or inputs[0].definition.key_type,
                "errors": errors,
                "timeout": None if timeout is None else to_duration(timeout) / 1000,
                "concurrency": concurrency,
                "guarantee": guarantee,
            }
            service = self._make(handler, names, options)
            self.services[label] = service
            return service

        return register

    def _inputs(self, label: str, inputs: tuple[Topic, ...]) -> tuple[TopicDefinition, ...]:
        _check_name("service", label)
        if label in self.services:
            raise DefinitionError(f"service {label!r} is declared twice; give one of them name=...")
        if not inputs:
            raise DefinitionError(f"service {label!r} reads no topic: @app.process(topic, ...)")
        for topic in inputs:
            if not isinstance(topic, Topic):
                raise DefinitionError(f"service {label!r} reads {topic!r}, which is no topic made by app.topic(...)")
        if len(set(inputs)) < len(inputs):
            raise DefinitionError(f"service {label!r}: name the topics that it reads each once")
        return tuple(topic.definition for topic in inputs)

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
    async def send(  # type: ignore[override]
        self,
        topic: Topic,
        *,
        value: Any,
        key: Any = None,
        timestamp: Instant | None = None,
        headers: Headers = (),
    ) -> int:
        """Append one value to a topic of a running app. Returns the position after it, when it is durable."""
        ends = await self._append(topic, [(key, value)], timestamp, headers)
        return next(iter(ends.values()))

    async def send_many(
        self, topic: Topic, values: Iterable[Any], *, timestamp: Instant | None = None, headers: Headers = ()
    ) -> Mapping[int, int]:
        """Append values, keyed by the topic's own function, in one transaction: all of them or none.

        Returns, for each partition that got some, the position after its last one, when all are durable."""
        ends = await self._append(topic, ((None, value) for value in values), timestamp, headers)
        return {source.partition: end for source, end in ends.items()}

    async def _append(
        self, topic: Topic, keyed: Iterable[tuple[Any, Any]], timestamp: Instant | None, headers: Headers
    ) -> Mapping[TopicPartition, int]:
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
        if not records:
            return {}
        async with self.host.gate.together():
            writer = await self.host.log.writer()
            try:
                return await writer.append(records)
            finally:
                await writer.close()


def _check_name(kind: Literal["app", "topic", "service"], name: str) -> None:
    legal = name and all(letter.isalnum() or letter in "._-" for letter in name) and name.isascii()
    if not legal or len(name) > 200 or name in (".", ".."):
        raise DefinitionError(f"{name!r} cannot be the name of a {kind}: use letters, digits, '.', '_' and '-'")


def _snake(name: str) -> str:
    """matchmaker stays; MatchMaker becomes match_maker."""
    return "".join(f"_{c.lower()}" if c.isupper() and i else c.lower() for i, c in enumerate(name)).replace("__", "_")


def _getter(key: KeyBy | None) -> Callable[[Any], Any] | None:
    if key is None or callable(key):
        return key
    field = key
    return lambda value: value[field] if isinstance(value, dict) else getattr(value, field)


def _outputs(label: str, to: Topic | Iterable[Topic] | Mapping[str, Topic]) -> dict[str, TopicDefinition]:
    if isinstance(to, Mapping):
        named = list(to.items())
    else:
        topics = [to] if isinstance(to, Topic) else list(to)
        named = [(getattr(topic, "name", repr(topic)), topic) for topic in topics]
    if not all(isinstance(topic, Topic) for _, topic in named) or len(dict(named)) != len(named):
        raise DefinitionError(f"service {label!r}: to= takes topics made by app.topic(...), each once")
    return {name: topic.definition for name, topic in named}


def _key_functions(
    inputs: tuple[Topic, ...], key_by: KeyBy | Mapping[Topic, KeyBy] | None
) -> tuple[Callable[[Any], Any], ...] | None:
    if key_by is None:
        return None
    if isinstance(key_by, Mapping):
        missing = [topic.name for topic in inputs if topic not in key_by]
        if missing:
            raise DefinitionError(f"key_by= says nothing about {', '.join(missing)}")
        chosen: list[KeyBy] = [key_by[topic] for topic in inputs]
    else:
        chosen = [key_by] * len(inputs)
    return tuple(cast("Callable[[Any], Any]", _getter(item)) for item in chosen)
