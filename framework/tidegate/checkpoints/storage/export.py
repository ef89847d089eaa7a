"""Writes a savepoint's state to files that other programs read: Parquet, with typed columns, or JSON lines.

One file for each state, `SERVICE.STATE.parquet` or `.jsonl`, with a row for each stored value:

    key       the actor's key, as text
    subkey    the key of a map's entry, or the position of a list's item; null for other kinds
    value     of the recorded type, as far as Arrow has such a one, else its JSON as text
    expires   when it expires, in ms; null: never
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from tidegate.checkpoints.storage.contents import Contents, Stored
from tidegate.state.schema import StateSchema

__all__ = ("Format", "export_state")

Format = Literal["parquet", "jsonl"]
_PORTION: Final = 20_000


def export_state(
    contents: Contents, service: str, state: str, directory: Path, format_: Format, tell: Callable[[int], None]
) -> tuple[Path, int]:
    """The file, and how many rows it has. `tell`: how many more were written."""
    schema = contents.schemas(service)[state]
    target = directory / f"{service}.{state}.{format_}"
    rows = (_row(stored, schema) for stored in contents.entries(service, state))
    writer = _write_parquet if format_ == "parquet" else _write_lines
    new = target.with_name(f"{target.name}.new")
    count = writer(new, rows, schema, tell)
    new.replace(target)
    return target, count


def _row(stored: Stored, schema: StateSchema) -> dict[str, Any]:
    value: Any = _text(stored.value) if schema.type == {"type": "bytes"} else msgspec.json.decode(stored.value)
    sub: Any = _text(stored.sub) if schema.kind == "map" else None
    if schema.kind == "list":
        sub = str(int.from_bytes(stored.sub, "big"))
    return {"key": _text(stored.key), "subkey": sub, "value": value, "expires": stored.expires}


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return f"base64:{base64.b64encode(raw).decode()}"


def _write_lines(path: Path, rows: Iterator[dict[str, Any]], _: StateSchema, tell: Callable[[int], None]) -> int:
    encoder, count = msgspec.json.Encoder(), 0
    with path.open("wb") as file:
        while portion := list(islice(rows, _PORTION)):
            file.write(encoder.encode_lines(portion))
            count += len(portion)
            tell(len(portion))
    return count


# ---------------------------------------------------------------------------------------------------------- Parquet


def _write_parquet(path: Path, rows: Iterator[dict[str, Any]], schema: StateSchema, tell: Callable[[int], None]) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    wanted = _arrow(schema.type, schema.type.get("$defs", {}), ())
    kind = pa.string() if wanted is None else wanted
    columns = pa.schema(
        [("key", pa.string()), ("subkey", pa.string()), ("value", kind), ("expires", pa.timestamp("ms", tz="UTC"))]
    )
    count = 0
    with pq.ParquetWriter(path, columns, compression="zstd") as writer:
        while portion := list(islice(rows, _PORTION)):
            values = [_as_json(row["value"]) if wanted is None else row["value"] for row in portion]
            arrays = [
                pa.array([row["key"] for row in portion], pa.string()),
                pa.array([row["subkey"] for row in portion], pa.string()),
                pa.array([_shaped(value, kind) for value in values], kind),
                pa.array([row["expires"] for row in portion], pa.timestamp("ms", tz="UTC")),
            ]
            writer.write_table(pa.Table.from_arrays(arrays, schema=columns))
            count += len(portion)
            tell(len(portion))
    return count


def _arrow(schema: dict[str, Any], definitions: dict[str, Any], within: tuple[str, ...]) -> Any:
    """The Arrow type of a JSON Schema. None: there is none that fits, and the value is kept as JSON."""
    import pyarrow as pa

    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return None if name in within else _arrow(definitions[name], definitions, (*within, name))
    if "anyOf" in schema:
        others = [one for one in schema["anyOf"] if one.get("type") != "null"]
        return _arrow(others[0], definitions, within) if len(others) == 1 else None
    if "enum" in schema:
        return pa.string() if all(isinstance(item, str) for item in schema["enum"]) else None
    kind = schema.get("type")
    if kind == "object" and schema.get("properties"):
        fields = {name: _arrow(one, definitions, within) for name, one in schema["properties"].items()}
        return pa.struct([(name, pa.string() if one is None else one) for name, one in fields.items()])
    if kind == "array" and isinstance(schema.get("items"), dict):
        item = _arrow(schema["items"], definitions, within)
        return None if item is None else pa.list_(item)
    simple = {"string": pa.string(), "bytes": pa.string(), "integer": pa.int64(), "number": pa.float64()}
    return pa.bool_() if kind == "boolean" else simple.get(str(kind))


def _shaped(value: Any, kind: Any) -> Any:
    """What the column takes: where it has text for something else, the JSON of that."""
    import pyarrow as pa

    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: _shaped(value.get(field.name), field.type) for field in kind}
    if pa.types.is_list(kind):
        return [_shaped(item, kind.value_type) for item in value]
    if pa.types.is_string(kind) and not isinstance(value, str):
        return _as_json(value)
    return value


def _as_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
