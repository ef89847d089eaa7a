"""A state's entries as typed columns, read from a savepoint or from a changelog.

One row per key; for a map one per entry, with the map's own key in `entry`; for a list one per item, with `index`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as t

from tidegate.errors import UnknownNameError
from tidegate_spark.types.event_schema import convert
from tidegate_spark.types.json_schema import JSON, json_schema
from tidegate_spark.types.record_columns import from_json, typed_key

if TYPE_CHECKING:
    from tidegate import App
    from tidegate.interop import StateDeclaration

__all__ = ("StateShape", "shape_in_app", "shape_in_savepoint")


@dataclass(frozen=True)
class StateShape:
    """The types of a state."""

    kind: str
    value: JSON
    """The JSON Schema of stored values."""
    key_type: Any
    """The type of the service's keys."""
    entry: JSON | None
    """The JSON Schema of a map's own keys."""
    ttl: bool

    @property
    def ordered(self) -> bool:
        """Whether a map's own keys may be stored in the order of keys: `plain_subkey` has them as JSON."""
        return self.kind == "map" and not (self.entry is not None and _is_bytes(self.entry))

    def columns(self) -> list[Column]:
        """The typed columns, from the binary columns key, sub and value."""
        found = [typed_key(F.col("key"), self.key_type).alias("key")]
        if self.kind == "map":
            found.append(self._entry().alias("entry"))
        elif self.kind == "list":
            found.append(F.conv(F.hex("sub"), 16, 10).cast("long").alias("index"))
        return [*found, self._value().alias("value")]

    def _entry(self) -> Column:
        """Map keys are encoded like keys: str as text, int as digits, bytes unchanged, the rest as JSON."""
        schema = self.entry or {"type": "string"}
        if schema.get("type") == "string" and "format" not in schema and "contentEncoding" not in schema:
            return F.col("sub").cast("string")
        if _is_bytes(schema):
            return F.col("sub")
        return from_json(F.col("sub").cast("string"), convert(schema))

    def _value(self) -> Column:
        if _is_bytes(self.value):
            return F.col("value")
        text, type_ = F.col("value").cast("string"), convert(self.value)
        if isinstance(type_, t.StringType) and self.value.get("type") != "string":
            return text  # JSON without a Spark equivalent
        return from_json(text, type_)


def _is_bytes(schema: JSON) -> bool:
    return schema.get("type") == "bytes" or schema.get("contentEncoding") == "raw"


def shape_in_app(app: App, service: str, state: str) -> StateShape:
    """The types that the app's code declares."""
    services = {known.name: known for known in app.define().services}
    if service not in services:
        raise UnknownNameError("service", service, services)
    states = services[service].states
    if state not in states:
        raise UnknownNameError("state", state, states, of=f"of service {service!r}")
    declared: StateDeclaration = states[state]
    entry = None if declared.key_type is None else json_schema(declared.key_type)
    key_type = services[service].key_type
    return StateShape(declared.kind, json_schema(declared.codec.type), key_type, entry, declared.ttl is not None)


def shape_in_savepoint(schema: JSON) -> StateShape:
    """The types recorded in a savepoint's manifest. The key type is not recorded: keys are read as text."""
    return StateShape(schema["kind"], schema["type"], str, schema.get("key_type"), bool(schema.get("ttl")))
