"""State schemas: recorded with the state, so that a later version of the code can check whether it can read the values.

A schema is derived from the declaration: kind, version, and the stored types as JSON Schema, without parts that do not
matter for decoding (titles, descriptions, defaults). It is a format in changelogs and savepoints.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Struct

from tidegate.codecs import codec_for
from tidegate.state.declaration import StateDeclaration
from tidegate.state.map_keys import map_keys

__all__ = ("Migrating", "StateSchema", "decode_schema", "encode_schema", "json_schema", "schema_of")

_OMITTED: Final = ("title", "description", "default", "examples", "deprecated")


class Migrating(Struct, frozen=True, kw_only=True):
    """A migration in progress: entries up to `cursor`, in the order of the store's keys, have the new version."""

    to: StateSchema
    cursor: bytes


class StateSchema(Struct, frozen=True, kw_only=True, omit_defaults=True):
    kind: str
    version: int = 1
    type: dict[str, Any]
    """The stored type: of a value, an entry's value, an item, an accumulator."""
    key_type: dict[str, Any] | None = None
    """The type of a map's keys."""
    ttl: bool = False
    """Whether stored values are prefixed with their time of expiry."""
    layout: int = 0
    """The encoding of a map's keys: see `map_keys`."""
    migrating: Migrating | None = None


_encoder: Final = msgspec.json.Encoder(order="deterministic")
_decoder: Final = msgspec.json.Decoder(StateSchema)


def encode_schema(schema: StateSchema) -> bytes:
    return _encoder.encode(schema)


def decode_schema(raw: bytes) -> StateSchema:
    return _decoder.decode(raw)


def schema_of(declaration: StateDeclaration) -> StateSchema:
    return StateSchema(
        kind=declaration.kind,
        version=declaration.version,
        type=json_schema(declaration.codec.type),
        key_type=None if declaration.key_type is None else json_schema(declaration.key_type),
        ttl=declaration.ttl is not None,
        layout=map_keys(declaration.key_type).layout if declaration.kind == "map" else 0,
    )


def json_schema(type_: Any) -> dict[str, Any]:
    """The JSON Schema of a type; `{"type": "bytes"}` for bytes, which are stored unchanged."""
    if type_ is bytes:
        return {"type": "bytes"}
    codec_for(type_)  # refuses what cannot be stored
    try:
        found = msgspec.json.schema(type_, schema_hook=_record)
    except (TypeError, NotImplementedError):
        from pydantic import TypeAdapter

        found = TypeAdapter(type_).json_schema()
    plain = msgspec.json.decode(msgspec.json.encode(found))
    return _relevant(plain)  # type: ignore[no-any-return]


def _relevant(node: Any, *, names: bool = False) -> Any:
    """Removes parts that do not matter for decoding. `names`: the keys are names of fields, not of JSON Schema."""
    if isinstance(node, dict):
        return {
            key: _relevant(value, names=key in ("properties", "$defs") and not names)
            for key, value in node.items()
            if names or key not in _OMITTED
        }
    return [_relevant(item) for item in node] if isinstance(node, list) else node


def _record(cls: Any) -> dict[str, Any]:
    """The schema of a faust.Record. Other types that msgspec does not know are left to pydantic."""
    options = getattr(cls, "_options", None)
    fields = getattr(options, "fields", None)
    if fields is None:
        raise NotImplementedError
    optional = getattr(options, "optionalset", ())
    return {
        "type": "object",
        "properties": {name: {"x-type": repr(hint)} for name, hint in fields.items()},
        "required": [name for name in fields if name not in optional],
    }
