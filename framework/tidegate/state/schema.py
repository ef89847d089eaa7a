"""What is recorded of a state's type, so that a later version of the code can tell whether it still reads the values.

A schema is derived from the declaration: its kind, its version, and the types of what is stored as JSON Schema, without
what does not matter for reading (titles, descriptions, defaults). It is a format: it is in changelogs and savepoints.
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
    """A migration that was begun: what is up to `cursor`, in the order of the store's keys, is of the new version."""

    to: StateSchema
    cursor: bytes


class StateSchema(Struct, frozen=True, kw_only=True, omit_defaults=True):
    kind: str
    version: int = 1
    type: dict[str, Any]
    """Of what is stored: a value, an entry's value, an item, an accumulator."""
    key_type: dict[str, Any] | None = None
    """Of a map's own keys."""
    ttl: bool = False
    """Whether values begin with when they expire."""
    layout: int = 0
    """How a map's own keys are written: see `map_keys`."""
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
    """As JSON Schema; `{"type": "bytes"}` for bytes, which are stored as they are."""
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
    """Without what does not matter for reading. `names`: the keys are a user's own."""
    if isinstance(node, dict):
        return {
            key: _relevant(value, names=key in ("properties", "$defs") and not names)
            for key, value in node.items()
            if names or key not in _OMITTED
        }
    return [_relevant(item) for item in node] if isinstance(node, list) else node


def _record(cls: Any) -> dict[str, Any]:
    """A faust.Record. Anything else that msgspec does not know is pydantic's."""
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
