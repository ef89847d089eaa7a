"""App: the declared topics and services of an application, and its settings."""

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
    key_function,
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
    """An application: its topics, its keyed services and its settings.

    id: the name of the app. It is part of the name of its consumer group, its internal topics and its data directory.
    time, watermark: the default time source and watermark strategy of its topics. faust: options of the Faust app,
    `app.faust`. All other parameters are settings, as `tidegate config` lists them; environment variables and
    command-line options take precedence."""

    # fmt: off
    @refuse_unknown_options
    def __init__(
        self,
        id: str,
        *,
        time: TimeSource | None = None,
        watermark: WatermarkStrategy | None = None,
        faust: Mapping[str, Any] | None = None,
        # The log, and the state on disk.
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
        """time, watermark: the defaults for topics that declare none. faust: options of the Faust app, `app.faust`. All
        others are settings: see docs/configuration.md."""
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
        """The app's name. Its consumer group, internal topics and data directory are named after it."""
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
        """The declarations so far, as an immutable definition that a worker can plan and run."""
        from tidegate.host.app_definition import AppDefinition

        return AppDefinition(
            id=self._id,
            services=tuple(service.complete() for service in self._services.values()),
            topics=tuple(topic.definition for topic in self._topics.values()),
            options=self._settings,
        )

    # -- declarations ------------------------------------------------------------------------------------------------
    # A type checker uses the first matching overload: a class; a union; anything else, such as a Literal, or no type.
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

        value_type: the type of its values; the error policy of the reading service applies to values of another type.
        key: the key of a value that is sent, as a function of the value or the name of a field. key_type: the type of
        its keys; default: the type of that field, or str. partitions: default: the setting. retention: how long records
        are kept (seconds or a timedelta; 0: forever); default: the setting. compact: keep only the last record of each
        key. time, watermark: time source and watermark strategy; default: those of the app."""
        for wrong in (name, *misplaced):
            if not isinstance(wrong, str):
                raise DefinitionError(
                    f"{wrong!r} is not the name of a topic. If it is the type of its values, write value_type=..."
                )
        if misplaced:
            raise DefinitionError(
                f"app.topic({name!r}, ...) declares one topic; for several in one, write app.faust.topic(...)"
            )
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
            key=key_function(key),
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

    @overload  # with more than four topics, event types are not checked
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
        """Declare a keyed service: the decorated function or ProcessFunction class handles the records of the topics.

        to: the output topics, of which the first is the default; a mapping gives them names for `ctx.emit(..., to=)`.
        name: default: the name of the function or class. key_by: re-key the input by a function of the value, or by
        the name of a field. key_type: the type of the keys; default: as key_by= or the topics declare. parallelism: the
        number of tasks; default: the number of partitions of the topics; it is fixed for a run. errors: the error
        policy: STOP, SKIP, DEAD_LETTER or retry(...). timeout: the longest time that a handler may take. concurrency:
        the number of handlers of a task that may be suspended at the same time. threads: run the handlers, which are
        then plain functions that may block, in this number of threads per worker. guarantee: "exactly_once" or
        "at_least_once". remember: how long idempotency keys of messages are remembered."""
        if any(isinstance(item, FunctionType | type) for item in inputs):
            raise DefinitionError("write @app.process(topic, ...), with the input topics in parentheses")
        local_names = dict(sys._getframe(1).f_locals)  # noqa: SLF001  annotations may refer to the caller's locals

        def register(handler: Any) -> Service:
            function = type(handler) if isinstance(handler, ProcessFunction) else handler
            service = name or snake(getattr(function, "__name__", ""))
            options = {
                "name": service,
                "inputs": list(zip(self._inputs(service, inputs), key_functions(inputs, key_by), strict=True)),
                "outputs": outputs_of(service, to),
                "key_type": key_type or service_key_type(service, keyed_inputs(inputs, key_by)),
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
            return self._register(_service_of(handler, local_names, options))

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
        """Declare a keyed service that reads no topic: it handles messages from `service.tell`, `service.ask` and
        `ctx.tell`. Each key is one actor.

        handler: the name of the service, whose handlers `@service.on(MessageType)` adds; or a ProcessFunction whose
        methods `@tidegate.on(MessageType)` marks. key_type: the type of the keys. partitions: the number of tasks;
        default: the setting. remember: how long idempotency keys are remembered. errors: the default is DEAD_LETTER: a
        message that fails goes to the dead letters, and its `ask` raises the error. The other parameters are those of
        `process`."""
        local_names = dict(sys._getframe(1).f_locals)  # noqa: SLF001  annotations may refer to the caller's locals
        cls = handler if isinstance(handler, type) else type(handler)
        service = name or (handler if isinstance(handler, str) else snake(cls.__name__))
        self._check_service_name(service)
        options = {
            "name": service,
            "outputs": outputs_of(service, to),
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
            return self._register(actor_service(local_names, **options))
        return self._register(_service_of(handler, local_names, {**options, "inputs": ()}))

    def _register(self, service: Service) -> Service:
        self._services[service.name] = service
        service.messenger = LateMessenger(lambda: self._messenger)
        return service

    def _inputs(self, service: str, inputs: Inputs) -> tuple[TopicDefinition, ...]:
        self._check_service_name(service)
        return inputs_of(service, inputs)

    def _check_service_name(self, service: str) -> None:
        check_name("service", service)
        if re.match(r"run-\d+(\.|$)", service):
            raise DefinitionError(f"service {service!r}: names that begin with 'run-' and a number belong to Tidegate")
        if service in self._services:
            raise DefinitionError(f"service {service!r} is declared twice; give one of them name=...")


def _topic_key_type(value_type: Any, key: KeyBy[Any] | None, declared: Any) -> dict[str, Any]:
    if declared is not None:
        return {"key_type": declared, "key_type_from": "declared"}
    key_type = field_key_type(value_type, key) if isinstance(key, str) else None
    return {} if key_type is None else {"key_type": key_type, "key_type_from": "field"}


def _service_of(handler: Any, local_names: Mapping[str, Any], options: dict[str, Any]) -> Service:
    if isinstance(handler, type):
        if not issubclass(handler, ProcessFunction):
            raise DefinitionError(f"{handler.__qualname__} must derive from ProcessFunction, or be an async function")
        return class_service(handler(), local_names, **options)
    if isinstance(handler, ProcessFunction):
        return class_service(handler, local_names, **options)
    return function_service(handler, local_names, **options)
