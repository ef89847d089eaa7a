"""Common parts of all table formats: ownership by one query, and the partition column of the day."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from tidegate_spark.errors import JobDefinitionError, TableOwnedError
from tidegate_spark.jobs.contract import Table
from tidegate_spark.jobs.files import Files, joined

__all__ = ("DATE", "OWN", "check_owner", "computed", "dated")

DATE: Final = "date"
OWN: Final = "_tidegate"
"""The directory for bookkeeping in a table; readers ignore it."""


def check_owner(files: Files, path: str, writer: str) -> None:
    """A table belongs to one query: the batch numbers of another checkpoint would not match."""
    owner = joined(path, OWN, "owner.json")
    if not files.exists(owner):
        files.write_json(owner, {"query": writer})
        return
    known = files.read_json(owner)["query"]
    if known != writer:
        raise TableOwnedError(path, known, writer)


def dated(table: Table, frame: DataFrame) -> DataFrame:
    """The frame with the partition column of the day."""
    column = table.date
    if column is None or DATE in frame.columns:
        return frame
    if column not in frame.columns:
        raise JobDefinitionError(
            f"table {table.name!r} is partitioned by the day of {column!r}, but its frame has no such column "
            f"({', '.join(frame.columns)}). Name another, Table(..., date='at'), or date=None."
        )
    return frame.withColumn(DATE, F.to_date(column))


def computed(frame: DataFrame) -> None:
    """Compute the frame for its side effect, the query's state after the batch: Spark does not continue from a batch
    whose state was not written."""
    frame.write.format("noop").mode("overwrite").save()
