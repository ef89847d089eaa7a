"""Decodes raw records to typed columns: the value by its schema, the sender's stamp, and the error of a bad record."""

from __future__ import annotations

import json
from typing import Any, Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  as everybody who uses Spark calls it
from pyspark.sql import types as t

from tidegate.interop import STAMP_HEADER
from tidegate_spark.errors import EventTypeError
from tidegate_spark.types.event_schema import EventSchema, spark_type

__all__ = ("Bad", "decoded", "from_json", "typed_key", "with_bad_policy")

Bad = Literal["fail", "drop", "keep"]
"""The policy for records that are not of the topic's type."""

_CORRUPT = "_tidegate_corrupt"
_PARSED = "_tidegate_parsed"


def decoded(raw: DataFrame, schema: EventSchema, key_type: Any) -> DataFrame:
    """key, value, timestamp, partition, offset, headers, sender, run, epoch; and for bad records raw and error."""
    stamp = F.split(_stamp(), "\\|")
    frame = raw.withColumn(_PARSED, _parse(schema)).withColumn("error", _error(schema))
    value = F.when(F.col("error").isNull(), _value(schema)).alias("value")
    return frame.select(
        typed_key(F.col("key"), key_type).alias("key"),
        value,
        "timestamp",
        "topic",
        "partition",
        "offset",
        "headers",
        stamp.getItem(0).alias("sender_app"),
        stamp.getItem(2).alias("sender"),
        stamp.getItem(1).alias("run"),
        stamp.getItem(3).cast("long").alias("epoch"),
        F.col("value").alias("raw"),
        "error",
    )


def with_bad_policy(frame: DataFrame, bad: Bad) -> DataFrame:
    """Apply the policy for bad records; `raw` and `error` remain only if they are kept."""
    if bad == "keep":
        return frame
    if bad == "drop":
        return frame.where(F.col("error").isNull()).drop("raw", "error")
    place = F.format_string("%s[%d] offset %d", "topic", "partition", "offset")
    complaint = F.concat(place, F.lit(" is not of the topic's type: "), F.col("error"))
    hint = F.lit(". Choose a policy for bad records: bad='drop' or bad='keep'.")
    value = F.when(F.col("error").isNull(), F.col("value")).otherwise(F.raise_error(F.concat(complaint, hint)))
    return frame.withColumn("value", value).drop("raw", "error")


def typed_key(key: Column, key_type: Any) -> Column:
    """The key by the topic's key type: text, a number, bytes, or parsed JSON."""
    if key_type is bytes:
        return key
    text = key.cast("string")
    if key_type is str or key_type is None:
        return text
    if key_type is int:
        return text.try_cast("long")
    return from_json(text, spark_type(key_type))


def _stamp() -> Column:
    """The stamp header, which every record has that a service emitted."""
    found = F.filter("headers", lambda header: header["key"] == STAMP_HEADER)
    return F.get(found, F.lit(0))["value"].cast("string")


# -------------------------------------------------------------------------------------------------------------- values


def _parse(schema: EventSchema) -> Column:
    text = F.col("value").cast("string")
    if isinstance(schema.type, t.BinaryType):
        return F.col("value")
    if isinstance(schema.type, t.StringType):
        return text
    if not isinstance(schema.type, t.StructType):
        return from_json(text, schema.type)
    with_corrupt = t.StructType([*schema.type.fields, t.StructField(_CORRUPT, t.StringType())])
    return F.from_json(text, with_corrupt, {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT})


def from_json(text: Column, type_: t.DataType) -> Column:
    """Parse JSON of any type. Spark parses objects only, so another value is wrapped in one."""
    if isinstance(type_, t.StructType):
        return F.from_json(text, type_)
    wrapped = F.concat(F.lit('{"it":'), text, F.lit("}"))
    return F.from_json(wrapped, t.StructType([t.StructField("it", type_)]))["it"]


def _error(schema: EventSchema) -> Column:
    """Why a record is bad; null for good records and tombstones."""
    raw, parsed = F.col("value"), F.col(_PARSED)
    if isinstance(schema.type, t.BinaryType):
        return F.lit(None).cast("string")
    not_json = F.lit("it is not JSON of the declared type")
    if isinstance(schema.type, t.StringType):
        valid = F.try_parse_json(parsed).isNotNull()
        return F.when(raw.isNotNull() & ~valid, not_json)
    if not schema.is_struct:
        null = F.trim(raw.cast("string")) == "null"
        return F.when(raw.isNotNull() & parsed.isNull() & ~null, not_json)
    bad = F.when(raw.isNotNull() & (parsed.isNull() | parsed[_CORRUPT].isNotNull()), not_json)
    for path in schema.required:
        missing = F.lit(f"the field {'.'.join(path)} is missing")
        bad = bad.when(raw.isNotNull() & parsed[path[0]].isNull(), missing)
    return bad


def _value(schema: EventSchema) -> Column:
    """The value, with defaults for fields that older records lack."""
    parsed = F.col(_PARSED)
    if not isinstance(schema.type, t.StructType):
        return from_json(parsed, t.StringType()) if schema.plain_text else parsed
    defaults = dict(schema.defaults)
    fields = [_field(parsed, field, defaults.get(field.name)).alias(field.name) for field in schema.type.fields]
    return F.when(F.col("value").isNotNull(), F.struct(*fields))


def _field(parsed: Column, field: t.StructField, default: Any) -> Column:
    column = parsed[field.name]
    if default is None:
        return column
    try:
        return F.coalesce(column, _literal(default, field.dataType))
    except (TypeError, ValueError) as error:
        raise EventTypeError(f"the default of {field.name}, {default!r}, has no Spark equivalent: {error}") from error


def _literal(value: Any, type_: t.DataType) -> Column:
    """A default, which is JSON in the type's schema."""
    return from_json(F.lit(json.dumps(value)), type_)
