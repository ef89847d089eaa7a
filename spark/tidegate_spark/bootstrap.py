"""Bootstraps services: writes state from DataFrames to a savepoint that an app can be restored from.

Each state is a frame. Its rows are validated and encoded by the state's types, repartitioned to the task that owns
their key, sorted, and written to the task's store, in parallel by task.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import msgspec
import orjson
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tidegate.codecs import codec_for
from tidegate.errors import DecodeError, UnknownNameError, UsageError
from tidegate.interop import (
    StateDeclaration,
    TaskSnapshot,
    encode_key,
    entry_writer,
    load_plan,
    map_keys,
    partition_of,
    schemas_of,
    write_manifest,
    write_task,
)
from tidegate_spark.reading.async_bridge import run_sync

if TYPE_CHECKING:
    from tidegate import App

__all__ = ("write_savepoint",)

_PLACED: Final = "task int, place binary, stored binary"
_WRITTEN: Final = "snapshot string"

States = Mapping[str, Mapping[str, DataFrame]]
"""By service and state."""


def write_savepoint(
    spark: SparkSession, app: App, savepoint: str, states: States, *, flags: Mapping[str, Any] | None = None
) -> None:
    """Write the states of services, as frames, to a savepoint that the app can be restored from.

    A frame has the columns key and value; for a map also entry, the map's own key; for a list index, from 0; for a
    state with a TTL optionally expires_at, a timestamp. savepoint: a path or URL that does not exist yet; its last part
    is the savepoint's name. The restore determines where the app reads each topic from."""
    plan = run_sync(load_plan(app.define(), flags))
    now = time.time_ns() // 1_000_000
    tasks: list[TaskSnapshot] = []
    for name, frames in states.items():
        if name not in plan.services:
            raise UnknownNameError("service", name, plan.services)
        service = plan.services[name]
        placed = [_placed(frame, _state(service, state), service.tasks, now) for state, frame in frames.items()]
        together = functools.reduce(DataFrame.union, [frame for parts in placed for frame in parts])
        tasks += _write(together, savepoint, service, now)
    written = [plan.services[name] for name in states]
    partitions = {topic.name: topic.partitions for topic in plan.topics.values()}
    outside = {topic for task in plan.tasks for topic in task.outside}
    write_manifest(savepoint, plan.app, written, tasks, partitions=partitions, outside=outside, now=now)


def _state(service: Any, state: str) -> StateDeclaration:
    if state not in service.states:
        raise UnknownNameError("state", state, service.states, of=f"of service {service.name!r}")
    declared: StateDeclaration = service.states[state]
    if declared.kind == "operator":
        raise UsageError(f"{service.name}.{state} is an operator state: it belongs to tasks and cannot be bootstrapped")
    return declared


# ------------------------------------------------------------------------------------------------------------ encoding


def _placed(frame: DataFrame, declared: StateDeclaration, tasks: int, now: int) -> list[DataFrame]:
    needed = {"map": "entry", "list": "index"}.get(declared.kind)
    for column in ("key", "value", *((needed,) if needed else ())):
        if column not in frame.columns:
            raise UsageError(
                f"state {declared.name!r} is bootstrapped from a frame without the column {column!r} "
                f"({', '.join(frame.columns)})"
            )
    encode = _encoder(declared, tasks)
    rows = frame.select(
        _json(frame, "key").alias("key"),
        (_json(frame, needed) if needed else F.lit(None).cast("string")).alias("sub"),
        _json(frame, "value").alias("value"),
        _expiry(frame, declared, now).alias("expires"),
    )
    found = [rows.mapInArrow(encode, _PLACED)]
    if declared.kind == "list":
        bounds = frame.groupBy("key").agg(F.array(F.min("index"), F.max("index") + 1).alias("value"))
        kept = StateDeclaration(name=f"{declared.name}.bounds", kind="value", codec=codec_for(tuple[int, int]))
        found += _placed(bounds, kept, tasks, now)
    return found


def _json(frame: DataFrame, column: str) -> Column:
    """A column as JSON, wrapped in an object, since Spark encodes no scalars."""
    return F.to_json(F.struct(F.col(column).alias("it")), {"ignoreNullFields": "false"})


def _expiry(frame: DataFrame, declared: StateDeclaration, now: int) -> Column:
    ttl = declared.ttl
    if ttl is None:
        return F.lit(None).cast("long")
    if "expires_at" in frame.columns:
        return F.unix_millis("expires_at")
    if ttl.time == "event":
        raise UsageError(f"state {declared.name!r} expires by event time: add a column expires_at")
    return F.lit(now + ttl.ms).cast("long")


def _encoder(declared: StateDeclaration, tasks: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Runs in Spark's Python processes, so it captures types, not codecs."""
    name, kind, value_type, ttl = declared.name, declared.kind, declared.codec.type, declared.ttl
    key_type = declared.key_type

    def encode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        state = StateDeclaration(name=name, kind=kind, codec=codec_for(value_type), ttl=ttl)
        place, read = entry_writer(state), functools.partial(_stored, state)
        for batch in batches:
            keys = [_key(text) for text in batch.column("key").to_pylist()]
            subs = [_sub(kind, key_type, text) for text in batch.column("sub").to_pylist()]
            values = map(read, batch.column("value").to_pylist())
            entries = list(map(place, keys, subs, values, batch.column("expires").to_pylist()))
            yield pa.RecordBatch.from_pydict(
                {
                    "task": pa.array([partition_of(key, tasks) for key in keys], pa.int32()),
                    "place": pa.array([at for at, _ in entries], pa.binary()),
                    "stored": pa.array([stored for _, stored in entries], pa.binary()),
                }
            )

    return encode


def _key(text: str) -> bytes:
    return encode_key(orjson.loads(text)["it"])


def _sub(kind: str, key_type: Any, text: str | None) -> bytes:
    if text is None:
        return b""
    value = orjson.loads(text)["it"]
    if kind == "list":
        return int(value).to_bytes(8, "big")
    keys, plain = map_keys(key_type), encode_key(value)
    return keys.stored(orjson.dumps(value) if keys.layout else plain)


def _stored(state: StateDeclaration, text: str) -> bytes:
    """Encode by the state's own type. A null that the type does not accept is treated as a missing field."""
    value = orjson.loads(text)["it"]
    codec = state.codec
    if codec.type is bytes:
        return msgspec.json.decode(orjson.dumps(value), type=bytes)
    try:
        return codec.encode(codec.decode(orjson.dumps(value)))
    except DecodeError as error:
        try:
            return codec.encode(codec.decode(orjson.dumps(_without_nulls(value))))
        except DecodeError:
            raise UsageError(f"a value for state {state.name!r} is not of its type: {error}: {text[:200]}") from error


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


# ------------------------------------------------------------------------------------------------------------- writing


def _write(placed: DataFrame, uri: str, service: Any, now: int) -> list[TaskSnapshot]:
    name, schemas, numbers = service.name, schemas_of(service), range(service.tasks)

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, rows in groupby(_rows(batches), key=itemgetter(0)):
            entries = ((place, stored) for _, place, stored in rows)
            made = write_task(uri, name, number, entries, schemas, now)
            yield pa.RecordBatch.from_pydict({"snapshot": [msgspec.json.encode(made).decode()]})

    spread = placed.repartition(service.tasks, "task").sortWithinPartitions("task", "place")
    found = [
        msgspec.json.decode(row.snapshot, type=TaskSnapshot) for row in spread.mapInArrow(write, _WRITTEN).collect()
    ]
    missing = set(numbers) - {task.number for task in found}
    return [*found, *(write_task(uri, name, number, (), schemas, now) for number in sorted(missing))]


def _rows(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, bytes, bytes]]:
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
