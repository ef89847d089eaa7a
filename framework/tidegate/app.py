"""App: topics and services, declared."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from types import FunctionType, UnionType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, overload

from tidegate.app_options import refuse_unknown_options
from tidegate.app_process import AppProcess
from tidegate.client.late_messenger import LateMessenger
from tidegate.codecs import codec_for
from tidegate.declarations import (
    ActorOptions,
    Inputs,
    KeyOf,
    Outputs,
    ProcessOptions,
    TopicOptions,
    inputs_of,
    key_functions,
    keyed_inputs,
    outputs_of,
)
from tidegate.errors import DefinitionError
from tidegate.functions.declaration.decorators import ProcessDecorator
from tidegate.functions.declaration.factories import actor_service, class_service, function_service
from tidegate.functions.declaration.key_types import field_key_type, service_key_type
from tidegate.functions.declaration.validation import (
    KeyBy,
    check_field,
    check_limits,
    check_name,
    check_time,
    getter,
    snake,
)
from tidegate.functions.definition import ActorSpec, ExecutionSpec, Guarantee
from tidegate.functions.policies import DEAD_LETTER, STOP, ErrorPolicy
from tidegate.functions.process import ProcessFunction
from tidegate.functions.service import Service
from tidegate.functions.topics import TopicDefinition
from tidegate.settings import setting_names
from tidegate.time.clock import Duration, to_duration
from tidegate.time.sources import EventTime, TimeSource
from tidegate.time.watermarks import BoundedOutOfOrderness, WatermarkStrategy
from tidegate.topics import Topic

if TYPE_CHECKING:
    from tidegate.host.app_definition import AppDefinition

__all__ = ("App",)

T = TypeVar("T")
K = TypeVar("K")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")

ActorHandler = str | type[ProcessFunction[Any, Any]] | ProcessFunction[Any, Any]

DAY = timedelta(days=1)


class App(AppProcess):
    """A named set of topics and keyed services, and how they run.

    Every setting that `tidegate config` shows may be given here; the environment and the command line override it."""

    # fmt: off
    @refuse_unknown_options
    def __init__(
        self,
        id: str,
        *,
        time: TimeSource | None = None,
        watermark: WatermarkStrategy | None = None,
        faust: Mapping[str, Any] | None = None,
        # The log, and what is kept on disk.
        broker: str | None = None, data: str | Path | None = None, partitions: int | None = None,
        retention_hours: float | None = None, store: Literal["rocksdb", "memory"] | None = None,
        cache_entries: int | None = None, store_memory_mb: int | None = None, flush_seconds: float | None = None,
        allow_dropped: Literal["off", "on"] | None = None,
        # The engine.
        commit_interval: float | None = None, commit_changes: int | None = None, slice_ms: float | None = None,
        buffer_records: int | None = None, progress_interval: float | None = None, stall_seconds: float | None = None,
        # Checkpoints.
        checkpoint_interval: float | None = None, checkpoint_storage: str | None = None,
        checkpoint_keep: int | None = None, checkpoint_timeout: float | None = None,
        # The worker.
        processes: int | None = None, drain_seconds: float | None = None, metrics: str | None = None,
        log_level: Literal["debug", "info", "warning", "error"] | None = None,
        # Spark jobs.
        tables: str | None = None, spark_master: str | None = None,
        # The HTTP API.
        api: str | None = None, advertise: str | None = None, api_insecure: Literal["off", "on"] | None = None,
        api_tokens: str | None = None, api_tokens_file: str | None = None, api_jwt_key: str | None = None,
        api_jwt_key_file: str | None = None, api_jwt_audience: str | None = None, api_jwt_issuer: str | None = None,
        api_peer_token: str | None = None, api_tls_cert: str | None = None, api_tls_key: str | None = None,
        api_tls_ca: str | None = None, api_cors: str | None = None, api_page: int | None = None,
        api_max_bytes: int | None = None, api_timeout: float | None = None, api_concurrency: int | None = None,
        api_scans: int | None = None, api_watchers: int | None = None,
        # Kafka.
        kafka_tls: Literal["off", "on"] | None = None, kafka_tls_ca: str | None = None,
        kafka_tls_cert: str | None = None, kafka_tls_key: str | None = None, kafka_tls_key_password: str | None = None,
        kafka_sasl_mechanism: Literal["", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = None,
        kafka_sasl_username: str | None = None, kafka_sasl_password: str | None = None,
        kafka_client_id: str | None = None,
        kafka_compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] | None = None,
        kafka_replication: int | None = None, kafka_max_request_bytes: int | None = None,
        kafka_connect_timeout: float | None = None, kafka_request_timeout: float | None = None,
        kafka_transaction_timeout: float | None = None, kafka_session_timeout: float | None = None,
        kafka_instance: str | None = None,
    ) -> None:
        """time, watermark: the defaults of topics. faust: options of the Faust app, `app.faust`. All others are
        settings: see docs/configuration.md."""
        given = locals()
        self._settings = {name: given[name] for name in setting_names() if given[name] is not None}
        check_name("app", id)
        check_time(f"App({id!r}, ...)", time, watermark)
        self._id, self._time, self._watermark = id, time or EventTime(), watermark or BoundedOutOfOrderness()
        self._topics: dict[str, Topic[Any]] = {}
        self._services: dict[str, Service] = {}
        super().__init__(faust or {})
    # fmt: on

    def __repr__(self) -> str:
        return f"<App {self._id}>"

    @property
    def id(self) -> str:
        """The name of the app, of its data and its consumer group, and the prefix of its internal topics."""
        return self._id

    @property
    def topics(self) -> Mapping[str, Topic[Any]]:
        """The declared topics, by name."""
        return self._topics

    @property
    def services(self) -> Mapping[str, Service]:
        """The declared services, by name."""
        return self._services

    def define(self) -> AppDefinition:
        """The declarations so far, for a worker."""
        from tidegate.host.app_definition import AppDefinition

        return AppDefinition(
            id=self._id,
            services=tuple(service.complete() for service in self._services.values()),
            topics=tuple(topic.definition for topic in self._topics.values()),
            options=self._settings,
        )

    # -- declarations ------------------------------------------------------------------------------------------------
    # Type checkers take the first overload that fits: for a class; for a union; for a Literal and other types that are
    # not classes; and for no type.
    @overload
    def topic(
        self, name: str, *, value_type: type[T], key: KeyBy[T] | None = None, **options: Unpack[TopicOptions]
    ) -> Topic[T]: ...

    @overload
    def topic(
        self, name: str, *, value_type: UnionType, key: KeyBy[Any] | None = None, **options: Unpack[TopicOptions]
    ) -> Topic[Any]: ...

    @overload
    def topic(
        self, name: str, *, value_type: Any = None, key: KeyBy[T] | None = None, **options: Unpack[TopicOptions]
    ) -> Topic[Any]: ...

    def topic(
        self,
        name: str,
        *misplaced: object,
        value_type: Any = None,
        key: KeyBy[Any] | None = None,
        key_type: Any = None,
        partitions: int | None = None,
        retention: Duration | None = None,
        retention_bytes: int | None = None,
        compact: bool = False,
        time: TimeSource | None = None,
        watermark: WatermarkStrategy | None = None,
    ) -> Topic[Any]:
        """Declare a topic.

        value_type: the type of its values; others go to the error policy of the service that reads them. key: a field
        or a function of a value, from which the key of a sent value is taken. key_type: the type of its keys; by
        default that of the field, or text. time, watermark: by default the app's. retention: how long records are kept
        (seconds or a timedelta; 0: for ever); by default the setting. compact: keep the last record of each key
        instead."""
        for wrong in (name, *misplaced):
            if not isinstance(wrong, str):
                raise DefinitionError(
                    f"{wrong!r} is not the name of a topic. If that is what its values are, say value_type=..."
                )
        if misplaced:
            raise DefinitionError(f"app.topic({name!r}, ...) declares one topic; several in one are app.faust.topic's")
        check_name("topic", name)
        check_time(f"topic {name!r}", time, watermark)
        check_limits(name, partitions, retention, retention_bytes)
        if name in self._topics:
            raise DefinitionError(f"topic {name!r} is declared twice; declare it once and share the object")
        codec = codec_for(Any if value_type is None else value_type)
        check_field(f"topic {name!r} takes its key from", key, codec.type)
        definition = TopicDefinition(
            name=name,
            codec=codec,
            partitions=partitions or 0,
            key=getter(key),
            **_topic_key_type(codec.type, key, key_type),
            time=time or self._time,
            watermark=watermark or self._watermark,
            retention_ms=None if retention is None else to_duration(retention),
            retention_bytes=retention_bytes,
            compact=compact,
        )
        self._topics[name] = Topic(definition, lambda: self._publisher)
        return self._topics[name]

    @overload
    def process(
        self, topic: Topic[A], /, *, key_by: KeyOf[A] | None = None, **options: Unpack[ProcessOptions]
    ) -> ProcessDecorator[A]: ...

    @overload
    def process(
        self,
        first: Topic[A],
        second: Topic[B],
        /,
        *,
        key_by: KeyOf[A | B] | None = None,
        **options: Unpack[ProcessOptions],
    ) -> ProcessDecorator[A | B]: ...

    @overload
    def process(
        self,
        first: Topic[A],
        second: Topic[B],
        third: Topic[C],
        /,
        *,
        key_by: KeyOf[A | B | C] | None = None,
        **options: Unpack[ProcessOptions],
    ) -> ProcessDecorator[A | B | C]: ...

    @overload
    def process(
        self,
        first: Topic[A],
        second: Topic[B],
        third: Topic[C],
        fourth: Topic[D],
        /,
        *,
        key_by: KeyOf[A | B | C | D] | None = None,
        **options: Unpack[ProcessOptions],
    ) -> ProcessDecorator[A | B | C | D]: ...

    @overload  # what comes after the fourth is not checked
    def process(
        self,
        first: Topic[Any],
        second: Topic[Any],
        third: Topic[Any],
        fourth: Topic[Any],
        fifth: Topic[Any],
        /,
        *more: Topic[Any],
        key_by: KeyOf[Any] | None = None,
        **options: Unpack[ProcessOptions],
    ) -> ProcessDecorator[Any]: ...

    def process(
        self,
        *inputs: Topic[Any],
        to: Outputs = (),
        name: str | None = None,
        key_by: KeyOf[Any] | None = None,
        key_type: Any = None,
        parallelism: int | None = None,
        errors: ErrorPolicy = STOP,
        timeout: Duration | None = None,
        concurrency: int = 1000,
        threads: int | None = None,
        guarantee: Guarantee = "exactly_once",
        remember: Duration = DAY,
    ) -> Any:
        """Make a function, or a ProcessFunction class, a keyed service: one actor per key of its input topics.

        to: the topics that it may emit to, of which the first is the default; a mapping gives them names of your own.
        key_by: re-key the input, by a field or a function of the value. key_type: the type of keys; by default that of
        key_by= or of the topics. parallelism: the number of tasks, by default that of the topics' partitions; it is
        fixed for a run. errors: STOP, SKIP, DEAD_LETTER or retry(...). timeout: the time limit of a handler.
        concurrency: how many handlers of a task may be suspended at the same time. threads: the number of threads in
        each worker that run the handlers, which must be plain functions. remember: how long idempotency keys of
        messages are kept."""
        if any(isinstance(item, FunctionType | type) for item in inputs):
            raise DefinitionError("write @app.process(topic, ...), with the topics that it reads in parentheses")
        names = dict(sys._getframe(1).f_locals)  # noqa: SLF001  so that annotations may name what is local to the caller

        def register(handler: Any) -> Service:
            named = type(handler) if isinstance(handler, ProcessFunction) else handler
            label = name or snake(getattr(named, "__name__", ""))
            options = {
                "name": label,
                "inputs": list(zip(self._inputs(label, inputs), key_functions(inputs, key_by), strict=True)),
                "outputs": outputs_of(label, to),
                "key_type": key_type or service_key_type(label, keyed_inputs(inputs, key_by)),
                "errors": errors,
                "execution": ExecutionSpec(
                    parallelism=parallelism,
                    concurrency=concurrency,
                    timeout=None if timeout is None else to_duration(timeout) / 1000,
                    guarantee=guarantee,
                    threads=threads,
                ),
                "actor": ActorSpec(remember_ms=to_duration(remember)),
            }
            return self._register(_service_of(handler, names, options))

        return register

    @overload
    def actor(self, handler: ActorHandler, *, key_type: type[K], **options: Unpack[ActorOptions]) -> Service[K]: ...

    @overload
    def actor(self, handler: ActorHandler, *, key_type: Any, **options: Unpack[ActorOptions]) -> Service[Any]: ...

    @overload
    def actor(self, handler: ActorHandler, **options: Unpack[ActorOptions]) -> Service[str]: ...

    def actor(
        self,
        handler: ActorHandler,
        *,
        to: Outputs = (),
        name: str | None = None,
        key_type: Any = str,
        errors: ErrorPolicy = DEAD_LETTER,
        timeout: Duration | None = None,
        concurrency: int = 1000,
        threads: int | None = None,
        partitions: int | None = None,
        remember: Duration = DAY,
    ) -> Service[Any]:
        """A keyed service that reads messages only, from `service.tell`, `service.ask` and `ctx.tell`: one actor per
        key.

        handler: a name, and then `@service.on(MessageType)` for each type of message; or a ProcessFunction with methods
        marked by `@tidegate.on(MessageType)`. partitions: the number of tasks. remember: how long idempotency keys are
        kept. The other options are those of `process`, except that by default a message that fails goes to the dead
        letters, and `ask` raises the error."""
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
                concurrency=concurrency,
                timeout=None if timeout is None else to_duration(timeout) / 1000,
                threads=threads,
            ),
            "actor": ActorSpec(partitions=partitions or 0, remember_ms=to_duration(remember)),
        }
        if isinstance(handler, str):
            return self._register(actor_service(names, **options))
        return self._register(_service_of(handler, names, {**options, "inputs": ()}))

    def _register(self, service: Service) -> Service:
        self._services[service.name] = service
        service.messenger = LateMessenger(lambda: self._messenger)
        return service

    def _inputs(self, label: str, inputs: Inputs) -> tuple[TopicDefinition, ...]:
        self._check_label(label)
        return inputs_of(label, inputs)

    def _check_label(self, label: str) -> None:
        check_name("service", label)
        if re.match(r"run-\d+(\.|$)", label):
            raise DefinitionError(f"service {label!r}: names that begin with 'run-' and a number belong to Tidegate")
        if label in self._services:
            raise DefinitionError(f"service {label!r} is declared twice; give one of them name=...")


def _topic_key_type(value_type: Any, key: KeyBy[Any] | None, declared: Any) -> dict[str, Any]:
    if declared is not None:
        return {"key_type": declared, "key_type_from": "declared"}
    found = field_key_type(value_type, key) if isinstance(key, str) else None
    return {} if found is None else {"key_type": found, "key_type_from": "field"}


def _service_of(handler: Any, names: Mapping[str, Any], options: dict[str, Any]) -> Service:
    if isinstance(handler, type):
        if not issubclass(handler, ProcessFunction):
            raise DefinitionError(f"{handler.__qualname__} must derive from ProcessFunction, or be an async function")
        return class_service(handler(), names, **options)
    if isinstance(handler, ProcessFunction):
        return class_service(handler, names, **options)
    return function_service(handler, names, **options)
