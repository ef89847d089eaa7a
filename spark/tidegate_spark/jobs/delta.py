"""Exactly-once commits to Delta tables: a batch is one Delta transaction.

1. Check that the table belongs to this query (`ownership`).
2. Append the rows with the query's id and the batch number. Delta records the last batch of each query, and skips a
   batch that it has committed.
3. Compute a skipped batch all the same, because Spark needs the query's state after it.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from tidegate.faults import fault_point
from tidegate_spark.jobs.contract import Table
from tidegate_spark.jobs.files import Files
from tidegate_spark.jobs.ownership import DATE, check_owner, computed, dated

__all__ = ("DeltaWriter",)


class DeltaWriter:
    """Commits the batches of one run of a query to one table."""

    def __init__(self, files: Files, table: Table, path: str) -> None:
        self._files, self._table, self._path = files, table, path
        self._first = True
        """Whether the next batch is the first since the query was started: only that one can be a retry."""

    def commit(self, frame: DataFrame, batch: int, writer: str) -> None:
        """`writer`: the id of the query, from its checkpoint."""
        check_owner(self._files, self._path, writer)
        fault_point("table.owned")
        again, self._first = self._first, False
        rows = dated(self._table, frame)
        if not again:
            self._append(rows, batch, writer)
            return
        rows.persist()
        try:
            self._append(rows, batch, writer)
            computed(rows)  # cached by the append, unless Delta skipped it
        finally:
            rows.unpersist()

    def replace(self, frame: DataFrame) -> None:
        """Replace the table's contents, for a batch job."""
        self._save(dated(self._table, frame), "overwrite", {"overwriteSchema": "true"})

    def _append(self, rows: DataFrame, batch: int, writer: str) -> None:
        self._save(rows, "append", {"txnAppId": writer, "txnVersion": str(batch), "mergeSchema": "true"})
        fault_point("table.appended")

    def _save(self, rows: DataFrame, mode: str, options: dict[str, str]) -> None:
        made = rows.write.format("delta").mode(mode).options(**options)
        (made.partitionBy(DATE) if DATE in rows.columns else made).save(self._path)
