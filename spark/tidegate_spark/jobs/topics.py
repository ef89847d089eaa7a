"""Writes a job's results to a topic: at least once, each record with an id that is the same for its duplicates."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from tidegate.interop import addresses_of, append_records, on_kafka
from tidegate_spark.errors import JobDefinitionError
from tidegate_spark.jobs.contract import ToTopic
from tidegate_spark.reading.kafka_options import connection_options

if TYPE_CHECKING:
    from tidegate import App

__all__ = ("ID_HEADER", "records", "send")

ID_HEADER: Final = "tidegate-id"


def records(frame: DataFrame, job: str, output: ToTopic) -> DataFrame:
    """The columns key, value and headers. The value is a JSON object of the frame's columns, or its only column
    `value`."""
    body = F.col("value") if frame.columns == ["value"] else F.to_json(F.struct(*frame.columns))
    identity = [F.coalesce(F.col(name).cast("string"), F.lit("")) for name in output.id] or [body]
    digest = F.sha2(F.concat_ws("\x1f", F.lit(job), *identity), 256)
    header = F.struct(F.lit(ID_HEADER).alias("key"), digest.cast("binary").alias("value"))
    return frame.select(
        _key(frame, output).alias("key"), body.cast("binary").alias("value"), F.array(header).alias("headers")
    )


def _key(frame: DataFrame, output: ToTopic) -> Column:
    if output.key is None:
        return F.lit(None).cast("binary")
    if output.key not in frame.columns:
        raise JobDefinitionError(
            f"records of {output.name!r} are keyed by {output.key!r}, but their frame has no such column "
            f"({', '.join(frame.columns)})"
        )
    return F.col(output.key).cast("string").cast("binary")


def send(frame: DataFrame, app: App, flags: Mapping[str, Any] | None, topic: str) -> None:
    """To a broker with Spark's own sink, from all executors; to an embedded log through its owner."""
    settings = app.define().resolve(flags).settings
    if on_kafka(settings):
        options = {"kafka.bootstrap.servers": ",".join(addresses_of(settings.broker)), **connection_options(settings)}
        frame.write.format("kafka").options(**options).option("topic", topic).option("includeHeaders", "true").save()
        return
    rows = [(row.key, row.value, [(header.key, bytes(header.value)) for header in row.headers]) for row in _rows(frame)]
    asyncio.run(append_records(app.define(), flags, topic, rows))


def _rows(frame: DataFrame) -> Any:
    return frame.toLocalIterator()
