"""An app's topics as DataFrames, batch and stream: the same columns on Kafka and on the embedded log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as t

from tidegate.codecs import codec_for
from tidegate.errors import DataError, UnknownNameError
from tidegate.settings import Settings
from tidegate.time.clock import to_instant
from tidegate.time.sources import EventTime, ProcessingTime
from tidegate_spark.errors import EventTypeError
from tidegate_spark.reading.records import read_raw, stream_raw
from tidegate_spark.types.event_schema import EventSchema, event_schema
from tidegate_spark.types.record_columns import Bad, decoded, with_bad_policy

if TYPE_CHECKING:
    from tidegate import App
    from tidegate.functions.topics import TopicDefinition

__all__ = ("FROM_TOPIC", "read_topic", "stream_topic", "topic_definition")

FROM_TOPIC: Final = "as the topic says"
"""The watermark that stream_topic takes from the topic's declaration."""


def read_topic(
    spark: SparkSession,
    app: App,
    topic: str,
    *,
    bad: Bad = "fail",
    schema: t.StructType | str | None = None,
    flags: Mapping[str, Any] | None = None,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """All committed records of a topic: value, typed by the event type; key, timestamp, event_time, partition, offset,
    headers; and of those that services emitted sender_app, sender, run and epoch.

    bad: what becomes of records that are not of the type: `fail` the query, `drop` them, or `keep` them with an `error`
    and the `raw` bytes. schema: instead of the type's, as for a topic of dict. flags: settings, as on the command line.
    options: for Spark's own source, such as startingOffsets."""
    definition = topic_definition(app, topic)
    raw = read_raw(spark, app.define().id, _settings(app, flags), topic, options or {})
    frame = decoded(raw, _schema(definition, schema), definition.key_type)
    return with_bad_policy(_with_time(frame, definition), bad)


def stream_topic(
    spark: SparkSession,
    app: App,
    topic: str,
    *,
    bad: Bad = "fail",
    watermark: str | None = FROM_TOPIC,
    schema: t.StructType | str | None = None,
    flags: Mapping[str, Any] | None = None,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """A topic as a stream, from the first record on. If retention deletes records before they are read, the query fails
    (failOnDataLoss is on).

    watermark: the delay of the watermark on event_time; by default the bound of the topic's declaration; for example
    "3 days"; None: no watermark. Spark's watermark follows the fastest partition, not the slowest: choose it larger."""
    definition = topic_definition(app, topic)
    raw = stream_raw(spark, app.define().id, _settings(app, flags), topic, options or {})
    frame = decoded(raw, _schema(definition, schema), definition.key_type)
    timed = with_bad_policy(_with_time(frame, definition), bad)
    delay = _bound(definition) if watermark == FROM_TOPIC else watermark
    return timed if delay is None else timed.withWatermark("event_time", delay)


def topic_definition(app: App, topic: str) -> TopicDefinition:
    known = {declared.name: declared for declared in app.define().topics}
    if topic not in known:
        raise UnknownNameError("topic", topic, known)
    return known[topic]


def _settings(app: App, flags: Mapping[str, Any] | None) -> Settings:
    return app.define().resolve(flags).settings


def _schema(definition: TopicDefinition, given: t.StructType | str | None) -> EventSchema:
    if given is None:
        return event_schema(definition.codec.type)
    struct = given if isinstance(given, t.StructType) else t.StructType.fromDDL(given)
    return EventSchema(struct, tuple((field.name,) for field in struct.fields if not field.nullable), ())


# ---------------------------------------------------------------------------------------------------------------- time


def _with_time(frame: DataFrame, definition: TopicDefinition) -> DataFrame:
    return frame.withColumn("event_time", _event_time(frame, definition))


def _event_time(frame: DataFrame, definition: TopicDefinition) -> Column:
    """By the topic's time source: a field or a function of the value, the record's timestamp, or the clock. A tombstone
    has the record's timestamp."""
    source = definition.time
    if isinstance(source, ProcessingTime):
        return F.current_timestamp()
    if not isinstance(source, EventTime) or source.of is None:
        return F.col("timestamp")
    return F.when(F.col("raw").isNull(), F.col("timestamp")).otherwise(_time_in_value(frame, definition, source))


def _time_in_value(frame: DataFrame, definition: TopicDefinition, source: EventTime) -> Column:
    if not isinstance(source.of, str):
        return _by_function(definition, source.of)
    kind = frame.schema["value"].dataType
    field = kind[source.of].dataType if isinstance(kind, t.StructType) and source.of in kind.names else None
    if field is None:
        path = f"$.{source.of}"
        return F.timestamp_millis(F.get_json_object(F.col("value").cast("string"), path).cast("long"))
    column = F.col("value")[source.of]
    if isinstance(field, t.NumericType):
        return F.timestamp_millis(column.cast("long"))
    return column.cast("timestamp")


def _by_function(definition: TopicDefinition, function: Any) -> Column:
    """Call the function in Spark's Python processes with the decoded value. A field by name is faster."""
    event_type = definition.codec.type

    def instant(raw: bytes | None) -> int | None:
        if raw is None:
            return None
        try:
            return to_instant(function(codec_for(event_type).decode(bytes(raw))))
        except DataError:
            return None  # a bad record, which is reported elsewhere

    call = F.udf(lambda raw: instant(raw), t.LongType())  # no annotations: Spark would interpret them
    return F.timestamp_millis(call(F.col("raw")))


def _bound(definition: TopicDefinition) -> str:
    bound = definition.watermark.bound
    if bound is None:
        raise EventTypeError(
            f"the watermark of topic {definition.name!r} is {type(definition.watermark).__name__}, which Spark does "
            f"not support: give a delay, stream_topic(..., watermark='10 seconds'), or watermark=None"
        )
    return f"{bound} milliseconds"
