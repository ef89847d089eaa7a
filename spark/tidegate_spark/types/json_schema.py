"""Types as JSON Schema. pydantic generates its own; for msgspec's types it is generated here, because msgspec's own
omits the formats of times."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import NODEFAULT
from msgspec import inspect as shapes

from tidegate_spark.errors import EventTypeError

__all__ = ("JSON", "json_schema")

JSON = Mapping[str, Any]

_PLAIN: Final[Mapping[type, JSON]] = {
    shapes.NoneType: {"type": "null"},
    shapes.BoolType: {"type": "boolean"},
    shapes.IntType: {"type": "integer"},
    shapes.FloatType: {"type": "number"},
    shapes.StrType: {"type": "string"},
    shapes.BytesType: {"type": "string", "contentEncoding": "base64"},
    shapes.ByteArrayType: {"type": "string", "contentEncoding": "base64"},
    shapes.DateTimeType: {"type": "string", "format": "date-time"},
    shapes.DateType: {"type": "string", "format": "date"},
    shapes.TimeType: {"type": "string", "format": "time"},
    shapes.TimeDeltaType: {"type": "string", "format": "duration"},
    shapes.UUIDType: {"type": "string", "format": "uuid"},
    shapes.DecimalType: {"type": "string", "format": "decimal"},
}


def json_schema(type_: Any) -> JSON:
    """EventTypeError: neither library supports the type."""
    if type_ is bytes:
        return {"type": "string", "contentEncoding": "raw"}
    try:
        return _SchemaBuilder().whole(shapes.type_info(type_))
    except (TypeError, ValueError, NameError, AttributeError, NotImplementedError) as error:
        failure: Exception = error
    try:
        from pydantic import PydanticUserError, TypeAdapter
    except ImportError:
        raise _unknown(type_, failure) from failure
    try:
        schema: JSON = TypeAdapter(type_).json_schema(by_alias=True, mode="validation")
    except (PydanticUserError, TypeError, NameError) as error:
        raise _unknown(type_, error) from error
    return schema


def _unknown(type_: Any, error: Exception) -> EventTypeError:
    name = getattr(type_, "__name__", repr(type_))
    return EventTypeError(f"type {name} has no Spark equivalent: {error}. Give a schema: read_topic(..., schema=...)")


class _SchemaBuilder:
    """Collects the definitions of classes, so that recursive classes are supported."""

    def __init__(self) -> None:
        self._known: dict[str, JSON] = {}

    def whole(self, node: shapes.Type) -> JSON:
        return {**self.part(node), "$defs": self._known}

    def part(self, node: Any) -> JSON:
        plain = _PLAIN.get(type(node))
        if plain is not None:
            return plain
        if isinstance(node, shapes.Metadata):
            return self.part(node.type)
        if isinstance(node, shapes.UnionType):
            return {"anyOf": [self.part(option) for option in node.types]}
        if isinstance(node, shapes.LiteralType):
            return {"enum": list(node.values)}
        if isinstance(node, shapes.EnumType):
            return {"enum": [member.value for member in node.cls]}
        if isinstance(node, shapes.DictType):
            return {"type": "object", "additionalProperties": self.part(node.value_type)}
        if isinstance(node, (shapes.TupleType, shapes.NamedTupleType)):
            return self._tuple(node)
        if hasattr(node, "item_type"):
            return {"type": "array", "items": self.part(node.item_type)}
        return self._class(node) if hasattr(node, "cls") else {}

    def _tuple(self, node: Any) -> JSON:
        items = node.item_types if isinstance(node, shapes.TupleType) else [field.type for field in node.fields]
        return {"type": "array", "prefixItems": [self.part(item) for item in items]}

    def _class(self, node: Any) -> JSON:
        """A struct, dataclass, TypedDict or faust.Record."""
        if getattr(node, "array_like", False):
            return {"type": "array", "prefixItems": [self.part(field.type) for field in node.fields]}
        name = f"{node.cls.__module__}.{node.cls.__qualname__}".replace("/", ".")
        if name not in self._known:
            self._known[name] = {}
            self._known[name] = self._record(node.cls) if isinstance(node, shapes.CustomType) else self._fields(node)
        return {"$ref": f"#/$defs/{name}"}

    def _fields(self, node: Any) -> JSON:
        tagged = getattr(node, "tag_field", None)
        properties: dict[str, Any] = {tagged: {"enum": [node.tag]}} if tagged else {}
        for field in node.fields:
            default = _default(field)
            part = self.part(field.type)
            properties[field.encode_name] = part if default is None else {"allOf": [part], "default": default}
        required = [field.encode_name for field in node.fields if field.required]
        return {"type": "object", "properties": properties, "required": required}

    def _record(self, cls: Any) -> JSON:
        options: Any = getattr(cls, "_options", None)
        if not hasattr(options, "fields"):
            raise NotImplementedError(f"{cls.__qualname__} is supported by neither msgspec nor Faust")
        properties = {name: self.part(shapes.type_info(type_)) for name, type_ in options.fields.items()}
        return {"type": "object", "properties": properties, "required": [*options.fields.keys() - options.optionalset]}


def _default(field: Any) -> Any:
    """The default as JSON; None: there is none, it is null, or it comes from an arbitrary factory."""
    value = field.default
    if value is NODEFAULT and field.default_factory in (list, dict, set, tuple):
        value = field.default_factory()
    try:
        return None if value is NODEFAULT else msgspec.to_builtins(value, str_keys=True)
    except (TypeError, ValueError):
        return None
