"""The changes of a state, from its service's changelog."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812

from tidegate.interop import EXPIRY, keyed_prefix, load_plan, parse_tail, plain_subkey
from tidegate_spark.reading.async_bridge import run_sync
from tidegate_spark.reading.records import read_raw, stream_raw
from tidegate_spark.types.state_columns import StateShape, shape_in_app

if TYPE_CHECKING:
    from tidegate import App

__all__ = ("read_changelog", "stream_changelog")

Changes = Literal["latest", "all"]

_PARSED: Final = (
    "key binary, sub binary, value binary, expires long, deleted boolean, "
    "timestamp timestamp, partition int, offset long"
)


def read_changelog(
    spark: SparkSession,
    app: App,
    service: str,
    state: str,
    *,
    changes: Changes = "latest",
    flags: Mapping[str, Any] | None = None,
) -> DataFrame:
    """A state from its changelog: `latest`, the current value of each key; or `all` retained changes, oldest first
    within a key, with `deleted` for removals. Changelogs are compacted: old changes are removed after a while."""
    raw = read_raw(spark, app.define().id, _settings(app, flags), _topic(app, flags, service), {})
    shape = shape_in_app(app, service, state)
    parsed = _parsed(raw, state, shape)
    if changes == "all":
        return _typed(parsed, shape)
    newest = Window.partitionBy("key", "sub").orderBy(F.desc("offset"))
    latest = parsed.withColumn("rank", F.row_number().over(newest)).where("rank = 1 and not deleted").drop("rank")
    return _typed(latest, shape).drop("deleted")


def stream_changelog(
    spark: SparkSession,
    app: App,
    service: str,
    state: str,
    *,
    flags: Mapping[str, Any] | None = None,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """The changes as a stream. For a table with the current value of each key, write it with a job with the same
    key."""
    raw = stream_raw(spark, app.define().id, _settings(app, flags), _topic(app, flags, service), options or {})
    shape = shape_in_app(app, service, state)
    return _typed(_parsed(raw, state, shape), shape)


def _settings(app: App, flags: Mapping[str, Any] | None) -> Any:
    return app.define().resolve(flags).settings


def _topic(app: App, flags: Mapping[str, Any] | None, service: str) -> str:
    """The changelog topic of the app's current run."""
    plan = run_sync(load_plan(app.define(), flags))
    return next((task.changelog.topic for task in plan.tasks if task.definition.name == service), service)


def _typed(parsed: DataFrame, shape: StateShape) -> DataFrame:
    extra = [F.timestamp_millis("expires").alias("expires_at")] if shape.ttl else []
    return parsed.select(*shape.columns(), "deleted", "timestamp", "partition", "offset", *extra)


def _parsed(raw: DataFrame, state: str, shape: StateShape) -> DataFrame:
    prefix, ttl, ordered = keyed_prefix(state), shape.ttl, shape.ordered
    mine = raw.where(F.substring("key", 1, len(prefix)) == F.lit(bytearray(prefix)))

    def parse(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield _parse(batch, len(prefix) + 1, ttl, ordered)

    return mine.select("key", "value", "timestamp", "partition", "offset").mapInArrow(parse, _PARSED)


def _parse(batch: pa.RecordBatch, skip: int, ttl: bool, ordered: bool) -> pa.RecordBatch:
    places = [parse_tail(key[skip:]) for key in batch.column("key").to_pylist()]
    values = batch.column("value").to_pylist()
    expires = [EXPIRY.unpack_from(value)[0] if ttl and value is not None else None for value in values]
    stored = [value[EXPIRY.size :] if ttl and value is not None else value for value in values]
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array([key for key, _ in places], pa.binary()),
            "sub": pa.array([plain_subkey(sub) if ordered else sub for _, sub in places], pa.binary()),
            "value": pa.array(stored, pa.binary()),
            "expires": pa.array(expires, pa.int64()),
            "deleted": pa.array([value is None for value in values], pa.bool_()),
            "timestamp": batch.column("timestamp"),
            "partition": batch.column("partition"),
            "offset": batch.column("offset"),
        }
    )
