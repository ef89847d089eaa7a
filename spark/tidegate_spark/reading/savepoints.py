"""The state in a savepoint or checkpoint as a DataFrame, read in parallel by task and key group."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from tidegate.errors import UnknownNameError
from tidegate.interop import EXPIRY, group_range, keyed_prefix, open_uri, parse_tail, plain_subkey
from tidegate_spark.errors import SavepointReadError
from tidegate_spark.types.state_columns import StateShape, shape_in_app, shape_in_savepoint

if TYPE_CHECKING:
    from tidegate import App

__all__ = ("SavepointSource", "read_state")

_BATCH: Final = 10_000
Row = tuple[bytes, bytes, bytes, int | None, int]
"""Key, subkey, value, expiry, key group."""

_ARROW: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("sub", pa.binary()),
        ("value", pa.binary()),
        ("expires", pa.int64()),
        ("key_group", pa.int32()),
        ("task", pa.int32()),
    ]
)


def read_state(spark: SparkSession, savepoint: str, service: str, state: str, *, app: App | None = None) -> DataFrame:
    """The entries of a state at the cut of a savepoint: key, value, key_group, task; for a map also entry, for a list
    index; with a TTL expires_at. Entries that had expired at the cut are left out.

    savepoint: its URI, `file:///…/savepoints/NAME`, `s3://…` or a path. The types are those recorded in the savepoint;
    with app, those of its code, including the key type."""
    reader = open_uri(savepoint)
    services = {task.service for task in reader.manifest.tasks}
    if service not in services:
        raise UnknownNameError("service", service, services)
    shape = _shape(reader.manifest.schemas.get(service, {}), service, state, app)
    if shape.kind == "operator":
        raise SavepointReadError(f"{service}.{state} is an operator state: it belongs to tasks and has no keys to read")
    spark.dataSource.register(SavepointSource)
    cores = spark.sparkContext.defaultParallelism
    options = {
        "uri": savepoint, "service": service, "state": state, "ttl": str(shape.ttl), "ordered": str(shape.ordered),
        "parallel": str(cores),
    }  # fmt: skip
    raw = spark.read.format(SavepointSource.name()).options(**options).load()
    extra = ["timestamp_millis(expires) as expires_at"] if shape.ttl else []
    typed = raw.select(*shape.columns(), "expires", "key_group", "task")
    return typed.selectExpr(*(c for c in typed.columns if c != "expires"), *extra)


def _shape(schemas: Mapping[str, Any], service: str, state: str, app: App | None) -> StateShape:
    if app is not None:
        return shape_in_app(app, service, state)
    if state not in schemas:
        raise UnknownNameError("state", state, schemas, of=f"of service {service!r} in this savepoint")
    return shape_in_savepoint(schemas[state])


class SavepointSource(DataSource):  # type: ignore[misc]
    @classmethod
    def name(cls) -> str:
        return "tidegate-savepoint"

    def schema(self) -> str:
        return "key binary, sub binary, value binary, expires long, key_group int, task int"

    def reader(self, schema: Any) -> StateReader:
        return StateReader(self.options)


@dataclass
class Groups(InputPartition):  # type: ignore[misc]
    """A range of key groups of a task, inclusive."""

    task: int
    first: int
    last: int


class StateReader(DataSourceReader):  # type: ignore[misc]
    def __init__(self, options: Mapping[str, str]) -> None:
        self._uri, self._service, self._state = options["uri"], options["service"], options["state"]
        self._ttl, self._parallel = options["ttl"] == "True", int(options["parallel"])
        self._ordered = options["ordered"] == "True"

    def partitions(self) -> Sequence[Groups]:
        """One per task; with fewer tasks than cores, several per task, by key groups."""
        manifest = open_uri(self._uri).manifest
        numbers = [task.number for task in manifest.tasks if task.service == self._service]
        parts = -(-self._parallel // len(numbers))
        bounds = [manifest.key_groups * part // parts for part in range(parts + 1)]
        return [Groups(number, first, end - 1) for number in numbers for first, end in pairwise(bounds)]

    def read(self, part: Groups) -> Iterator[pa.RecordBatch]:
        reader = open_uri(self._uri)
        task = reader.task(self._service, part.task)
        directory = Path(tempfile.mkdtemp(prefix="tidegate-savepoint-"))
        try:
            store = reader.open_store(task, directory / "store")
            try:
                prefix = keyed_prefix(self._state)
                pairs = store.scan(*group_range(prefix, part.first, part.last))
                cut = (task.marker.watermark, task.written_ms)
                rows = self._rows(pairs, len(prefix), max(cut))
                while batch := list(islice(rows, _BATCH)):
                    yield _batch(batch, part.task)
            finally:
                store.close()
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    def _rows(self, pairs: Iterator[tuple[bytes, bytes]], skip: int, now: int) -> Iterator[Row]:
        for place, value in pairs:
            key, sub = parse_tail(place[skip + 1 :])
            if self._ordered:
                sub = plain_subkey(sub)
            expires = None
            if self._ttl:
                (expires,) = EXPIRY.unpack_from(value)
                if expires <= now:
                    continue
                value = value[EXPIRY.size :]
            yield key, sub, value, expires, place[skip]


def _batch(rows: list[Row], task: int) -> pa.RecordBatch:
    columns = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), _ARROW, strict=False)]
    return pa.RecordBatch.from_arrays([*columns, pa.repeat(pa.scalar(task, pa.int32()), len(rows))], schema=_ARROW)
