"""Exports the state of a savepoint as Parquet with typed columns, or as JSON lines.

One file per state, `SERVICE.STATE.parquet` or `.jsonl`, with one row per stored value:

    key       the key, as text
    subkey    the key of a map's entry, or the index of a list's item; null for other kinds
    value     with the Arrow type of the recorded type; where Arrow has none, JSON as text
    expires   the time of expiry in ms; null: never
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from tidegate.checkpoints.storage.savepoint_state import SavepointState, StateEntry
from tidegate.state.schema import StateSchema

__all__ = ("Format", "export_state")

Format = Literal["parquet", "jsonl"]
_BATCH: Final = 20_000


def export_state(
    savepoint: SavepointState,
    service: str,
    state: str,
    directory: Path,
    format_: Format,
    on_progress: Callable[[int], None],
) -> tuple[Path, int]:
    """Returns the file and its number of rows. `on_progress`: called with the number of rows written since."""
    schema = savepoint.schemas(service)[state]
    target = directory / f"{service}.{state}.{format_}"
    rows = (_row(entry, schema) for entry in savepoint.entries(service, state))
    writer = _write_parquet if format_ == "parquet" else _write_lines
    new = target.with_name(f"{target.name}.new")
    count = writer(new, rows, schema, on_progress)
    new.replace(target)
    return target, count


def _row(entry: StateEntry, schema: StateSchema) -> dict[str, Any]:
    value: Any = _text(entry.value) if schema.type == {"type": "bytes"} else msgspec.json.decode(entry.value)
    sub: Any = _text(entry.sub) if schema.kind == "map" else None
    if schema.kind == "list":
        sub = str(int.from_bytes(entry.sub, "big"))
    return {"key": _text(entry.key), "subkey": sub, "value": value, "expires": entry.expires}


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return f"base64:{base64.b64encode(raw).decode()}"


def _write_lines(path: Path, rows: Iterator[dict[str, Any]], _: StateSchema, on_progress: Callable[[int], None]) -> int:
    encoder, count = msgspec.json.Encoder(), 0
    with path.open("wb") as file:
        while batch := list(islice(rows, _BATCH)):
            file.write(encoder.encode_lines(batch))
            count += len(batch)
            on_progress(len(batch))
    return count


# ---------------------------------------------------------------------------------------------------------- Parquet


def _write_parquet(
    path: Path, rows: Iterator[dict[str, Any]], schema: StateSchema, on_progress: Callable[[int], None]
) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    arrow_type = _arrow_type(schema.type, schema.type.get("$defs", {}), ())
    kind = pa.string() if arrow_type is None else arrow_type
    columns = pa.schema(
        [("key", pa.string()), ("subkey", pa.string()), ("value", kind), ("expires", pa.timestamp("ms", tz="UTC"))]
    )
    count = 0
    with pq.ParquetWriter(path, columns, compression="zstd") as writer:
        while batch := list(islice(rows, _BATCH)):
            values = [_as_json(row["value"]) if arrow_type is None else row["value"] for row in batch]
            arrays = [
                pa.array([row["key"] for row in batch], pa.string()),
                pa.array([row["subkey"] for row in batch], pa.string()),
                pa.array([_to_arrow(value, kind) for value in values], kind),
                pa.array([row["expires"] for row in batch], pa.timestamp("ms", tz="UTC")),
            ]
            writer.write_table(pa.Table.from_arrays(arrays, schema=columns))
            count += len(batch)
            on_progress(len(batch))
    return count


def _arrow_type(schema: dict[str, Any], definitions: dict[str, Any], enclosing: tuple[str, ...]) -> Any:
    """The Arrow type of a JSON Schema. None: Arrow has no such type, and the value is written as JSON. `enclosing`: the
    definitions around this one, to recognize recursive types."""
    import pyarrow as pa

    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return None if name in enclosing else _arrow_type(definitions[name], definitions, (*enclosing, name))
    if "anyOf" in schema:
        others = [one for one in schema["anyOf"] if one.get("type") != "null"]
        return _arrow_type(others[0], definitions, enclosing) if len(others) == 1 else None
    if "enum" in schema:
        return pa.string() if all(isinstance(item, str) for item in schema["enum"]) else None
    kind = schema.get("type")
    if kind == "object" and schema.get("properties"):
        fields = {name: _arrow_type(one, definitions, enclosing) for name, one in schema["properties"].items()}
        return pa.struct([(name, pa.string() if one is None else one) for name, one in fields.items()])
    if kind == "array" and isinstance(schema.get("items"), dict):
        item = _arrow_type(schema["items"], definitions, enclosing)
        return None if item is None else pa.list_(item)
    simple = {"string": pa.string(), "bytes": pa.string(), "integer": pa.int64(), "number": pa.float64()}
    return pa.bool_() if kind == "boolean" else simple.get(str(kind))


def _to_arrow(value: Any, kind: Any) -> Any:
    """The value as the column stores it: JSON text where the column is text and the value is not."""
    import pyarrow as pa

    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: _to_arrow(value.get(field.name), field.type) for field in kind}
    if pa.types.is_list(kind):
        return [_to_arrow(item, kind.value_type) for item in value]
    if pa.types.is_string(kind) and not isinstance(value, str):
        return _as_json(value)
    return value


def _as_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
