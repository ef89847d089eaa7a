"""The workloads with PyFlink's DataStream API, exactly once, state in RocksDB. Arguments: the connector's jars."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson
from pyflink.common import Configuration, Duration, Row, Types, WatermarkStrategy
from pyflink.common.serialization import SimpleStringSchema
from pyflink.datastream import (
    CheckpointingMode,
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
    TimeDomain,
)
from pyflink.datastream.connectors.base import DeliveryGuarantee
from pyflink.datastream.connectors.kafka import (
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)
from pyflink.datastream.state import MapStateDescriptor, ValueStateDescriptor

WINDOW, GRACE = int(os.environ["BENCH_WINDOW_MS"]), int(os.environ["BENCH_GRACE_MS"])
CAMPAIGNS: dict[str, str] = json.loads(Path(os.environ["BENCH_CAMPAIGNS"]).read_text())


class LikeCounter(KeyedProcessFunction):  # type: ignore[misc]
    """A counter per key; an output for every second event."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._state = runtime_context.get_state(ValueStateDescriptor("counter", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        n = (self._state.value() or 0) + 1
        self._state.update(n)
        if n % 2 == 0:
            yield orjson.dumps({"who": value, "n": n}).decode()


def likes(stream: Any) -> Any:
    keys = stream.map(lambda raw: orjson.loads(raw)["liked"], output_type=Types.STRING())
    return keys.key_by(lambda who: who, key_type=Types.STRING()).process(LikeCounter(), output_type=Types.STRING())


class ViewCounter(KeyedProcessFunction):  # type: ignore[misc]
    """A count per window of a campaign; every second those that changed go out, and the last ones."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._windows = runtime_context.get_map_state(MapStateDescriptor("windows", Types.LONG(), Types.LONG()))
        self._told = runtime_context.get_map_state(MapStateDescriptor("told", Types.LONG(), Types.LONG()))
        self._ticking: set[str] = set()

    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        campaign, at = value
        window = at - at % WINDOW
        known = self._windows.get(window)
        if known is None:
            ctx.timer_service().register_event_time_timer(window + WINDOW - 1)
        self._windows.put(window, (known or 0) + 1)
        if campaign not in self._ticking:
            self._ticking.add(campaign)
            self._tick(ctx)
        return ()

    def _tick(self, ctx: Any) -> None:
        now = ctx.timer_service().current_processing_time()
        ctx.timer_service().register_processing_time_timer(now - now % 1000 + 1000)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        campaign = ctx.get_current_key()
        if ctx.time_domain() == TimeDomain.EVENT_TIME:
            window = timestamp - WINDOW + 1
            yield counted(campaign, window, self._windows.get(window), last=True)
            self._windows.remove(window)
            self._told.remove(window)
            return
        for window, count in list(self._windows.items()):
            if self._told.get(window) != count:
                yield counted(campaign, window, count, last=False)
                self._told.put(window, count)
        self._tick(ctx)


def counted(campaign: str, window: int, count: int, *, last: bool) -> str:
    return orjson.dumps({"campaign": campaign, "window": window, "count": count, "final": last}).decode()


def view_of(raw: str) -> Iterable[Any]:
    ad = orjson.loads(raw)
    if ad["event_type"] == "view":
        yield Row(CAMPAIGNS[ad["ad_id"]], ad["event_time"])


def ads(stream: Any) -> Any:
    views = stream.flat_map(view_of, output_type=Types.ROW([Types.STRING(), Types.LONG()]))
    keyed = views.key_by(lambda view: view[0], key_type=Types.STRING())
    return keyed.process(ViewCounter(), output_type=Types.STRING())


def environment(jars: list[str]) -> StreamExecutionEnvironment:
    configuration = Configuration()
    configuration.set_string("pipeline.jars", ";".join(Path(jar).as_uri() for jar in jars))
    configuration.set_string("python.execution-mode", os.environ["BENCH_MODE"])
    configuration.set_string("python.executable", sys.executable)
    configuration.set_string("python.client.executable", sys.executable)
    configuration.set_string("restart-strategy.type", "none")  # show errors
    configuration.set_string("state.backend.type", "rocksdb")
    configuration.set_string("execution.checkpointing.incremental", "true")
    configuration.set_string("execution.checkpointing.storage", "filesystem")
    configuration.set_string("execution.checkpointing.dir", (Path(os.environ["BENCH_DATA"]) / "checkpoints").as_uri())
    made = StreamExecutionEnvironment.get_execution_environment(configuration)
    made.set_parallelism(1)
    made.enable_checkpointing(int(os.environ["BENCH_COMMIT_MS"]), CheckpointingMode.EXACTLY_ONCE)
    return made


def sink() -> KafkaSink:
    """Records without a key: the key's schema would get the whole value, and cannot be written in Python."""
    values = KafkaRecordSerializationSchema.builder().set_topic(os.environ["BENCH_OUTPUT"])
    exactly_once = os.environ["BENCH_GUARANTEE"] == "exactly_once"
    return (
        KafkaSink.builder()
        .set_bootstrap_servers(os.environ["BENCH_BROKER"])
        .set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE if exactly_once else DeliveryGuarantee.AT_LEAST_ONCE)
        .set_transactional_id_prefix(os.environ["BENCH_ID"])
        .set_property("transaction.timeout.ms", "600000")
        .set_record_serializer(values.set_value_serialization_schema(SimpleStringSchema()).build())
        .build()
    )


def main(jars: list[str]) -> None:
    yahoo = os.environ["BENCH_WORKLOAD"] == "yahoo"
    env = environment(jars)  # first of all: it makes the jars known
    source = (
        KafkaSource.builder()
        .set_bootstrap_servers(os.environ["BENCH_BROKER"])
        .set_topics(os.environ["BENCH_INPUT"])
        .set_group_id(os.environ["BENCH_ID"])
        .set_starting_offsets(KafkaOffsetsInitializer.earliest())
        .set_value_only_deserializer(SimpleStringSchema())
        .build()
    )
    # Kafka's record timestamps are the events' times.
    watermarks = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(GRACE))
    stream = env.from_source(source, watermarks if yahoo else WatermarkStrategy.no_watermarks(), "in")
    (ads if yahoo else likes)(stream).sink_to(sink())
    env.execute(os.environ["BENCH_WORKLOAD"])


if __name__ == "__main__":
    # Flink asks for the interpreter's library by the plain name of the command.
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    main(sys.argv[1:])
