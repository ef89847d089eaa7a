"""Event types as Spark types, by way of JSON Schema.

Values are JSON in the log, so the JSON form of a type counts: renamed fields, tags, dates as text. A type without a
Spark equivalent (a union of text and numbers, a tuple of mixed items, Any) becomes a string with the JSON text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import types as t
from pyspark.sql.types import DataType, StructType

from tidegate_spark.types.json_schema import JSON, json_schema

__all__ = ("EventSchema", "convert", "event_schema", "spark_type")

_FORMATS: Final = {"date-time": "timestamp", "date": "date"}
_Within = frozenset[str]
"""The classes that are being converted: within itself, a recursive class becomes JSON text."""


@dataclass(frozen=True)
class EventSchema:
    """The Spark schema of a topic's values."""

    type: DataType
    required: tuple[tuple[str, ...], ...]
    """The paths of required fields. A record without one of them is bad."""
    defaults: tuple[tuple[str, Any], ...]
    """The defaults of top-level fields that older records may lack."""
    plain_text: bool = False
    """Whether values are of type str, not other JSON that is represented as text."""

    @property
    def is_struct(self) -> bool:
        return isinstance(self.type, StructType)


def event_schema(event_type: Any) -> EventSchema:
    """The schema of a topic's `value_type`."""
    schema = json_schema(event_type)
    body = _resolve(schema, schema)
    required: tuple[tuple[str, ...], ...] = ()
    defaults: tuple[tuple[str, Any], ...] = ()
    if "properties" in body:
        nullable = {name for name, part in body["properties"].items() if _nullable(part, schema)}
        required = tuple((name,) for name in body.get("required", ()) if name not in nullable)
        defaults = tuple(
            (name, part["default"])
            for name, part in body["properties"].items()
            if isinstance(part, Mapping) and part.get("default") is not None
        )
    plain = body.get("type") == "string" and not (body.keys() & {"format", "contentEncoding"})
    return EventSchema(_convert(schema, schema), required, defaults, plain)


def spark_type(type_: Any) -> DataType:
    return convert(json_schema(type_))


def convert(schema: JSON) -> DataType:
    """A JSON Schema as a Spark type."""
    return _convert(schema, schema)


# ---------------------------------------------------------------------------------------------------------- converting


def _resolve(part: Any, root: JSON) -> JSON:
    """Follow references. The schemas `true` and `{}` give an empty schema."""
    while isinstance(part, Mapping) and ("$ref" in part or len(part.get("allOf", ())) == 1):
        part = root["$defs"][_name(part)] if "$ref" in part else part["allOf"][0]
    return part if isinstance(part, Mapping) else {}


def _name(part: JSON) -> str:
    return str(part["$ref"]).rsplit("/", 1)[-1]


def _nullable(part: Any, root: JSON) -> bool:
    part = _resolve(part, root)
    options = part.get("anyOf") or part.get("oneOf") or ()
    kind = part.get("type")
    unknown = not options and kind is None and "enum" not in part and "const" not in part
    return unknown or kind == "null" or any(_nullable(option, root) for option in options)


def _convert(part: Any, root: JSON, within: _Within = frozenset()) -> DataType:
    while isinstance(part, Mapping) and ("$ref" in part or len(part.get("allOf", ())) == 1):
        if "$ref" in part:
            if _name(part) in within:
                return t.StringType()
            within |= {_name(part)}
            part = root["$defs"][_name(part)]
        else:
            part = part["allOf"][0]
    part = _resolve(part, root)
    options = part.get("anyOf") or part.get("oneOf")
    if options:
        return _union(options, root, within)
    if "enum" in part or "const" in part:
        return _literal(part.get("enum", [part.get("const")]))
    kind = part.get("type")
    if kind == "object":
        return _object(part, root, within)
    if kind == "array":
        return _array(part, root, within)
    return _scalar(kind, part)


def _scalar(kind: Any, part: JSON) -> DataType:
    if kind == "string":
        if part.get("contentEncoding") in ("base64", "raw") or part.get("format") == "binary":
            return t.BinaryType()
        form = part.get("format")
        if form == "decimal":
            return t.DecimalType(38, 18)
        return {"timestamp": t.TimestampType(), "date": t.DateType()}.get(_FORMATS.get(str(form), ""), t.StringType())
    plain = {"integer": t.LongType(), "number": t.DoubleType(), "boolean": t.BooleanType()}
    return plain.get(kind, t.StringType())


def _literal(values: Sequence[Any]) -> DataType:
    kinds = {type(value) for value in values if value is not None}
    if kinds == {bool}:
        return t.BooleanType()
    return t.LongType() if kinds == {int} else t.StringType()


def _object(part: JSON, root: JSON, within: _Within) -> DataType:
    if "properties" in part:
        fields = part["properties"].items()
        return t.StructType([t.StructField(name, _convert(inner, root, within)) for name, inner in fields])
    inner = part.get("additionalProperties")
    if isinstance(inner, Mapping) and inner:
        return t.MapType(t.StringType(), _convert(inner, root, within))
    return t.StringType()


def _array(part: JSON, root: JSON, within: _Within) -> DataType:
    items = part.get("items")
    if isinstance(items, Mapping) and items:
        return t.ArrayType(_convert(items, root, within))
    kinds = [_convert(inner, root, within) for inner in part.get("prefixItems", ())]
    if kinds and all(kind == kinds[0] for kind in kinds):
        return t.ArrayType(kinds[0])
    return t.StringType()


def _union(options: Sequence[JSON], root: JSON, within: _Within) -> DataType:
    """An optional type is that type; tagged classes become one struct with the fields of all; others JSON text."""
    options = [option for option in options if _resolve(option, root).get("type") != "null"]
    kinds = [_convert(option, root, within) for option in options]
    if not kinds:
        return t.StringType()
    if all(kind == kinds[0] for kind in kinds):
        return kinds[0]
    if {_resolve(option, root).get("type") for option in options} == {"number", "string"}:
        return t.DecimalType(38, 18)  # pydantic's schema of a Decimal
    if all(isinstance(kind, t.NumericType) for kind in kinds):
        return t.DoubleType()
    structs = [kind for kind in kinds if isinstance(kind, t.StructType)]
    merged = _merged(structs) if len(structs) == len(kinds) else None
    return merged or t.StringType()


def _merged(structs: Sequence[StructType]) -> StructType | None:
    fields: dict[str, DataType] = {}
    for struct in structs:
        for field in struct.fields:
            if fields.setdefault(field.name, field.dataType) != field.dataType:
                return None
    return t.StructType([t.StructField(name, kind) for name, kind in fields.items()])
