"""Delta tables, which have transactions of their own: a batch is one of them.

1. A table belongs to one query, as others do (`owning`).
2. Append the rows with the query's id and the batch's number. Delta's log remembers the last one of each query, and
   leaves out a batch that it has.
3. A batch that was left out is computed all the same, for the state of its query.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from tidegate.faults import fault_point
from tidegate_spark.jobs.contract import Table
from tidegate_spark.jobs.files import Files
from tidegate_spark.jobs.ownership import DATE, check_owner, computed, dated

__all__ = ("DeltaWriter",)


class DeltaWriter:
    """Commits the batches of one query, from one start of it to its end, to one table."""

    def __init__(self, files: Files, table: Table, path: str) -> None:
        self._files, self._table, self._path = files, table, path
        self._first = True
        """Whether the next batch is the first since the query was started: no other can come again."""

    def commit(self, frame: DataFrame, batch: int, writer: str) -> None:
        """`writer` is the id of the query, which is that of its checkpoint."""
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
            computed(rows)  # kept from the append, unless that left them out
        finally:
            rows.unpersist()

    def replace(self, frame: DataFrame) -> None:
        """All that the table holds, by the job that is done at once."""
        self._save(dated(self._table, frame), "overwrite", {"overwriteSchema": "true"})

    def _append(self, rows: DataFrame, batch: int, writer: str) -> None:
        self._save(rows, "append", {"txnAppId": writer, "txnVersion": str(batch), "mergeSchema": "true"})
        fault_point("table.appended")

    def _save(self, rows: DataFrame, mode: str, options: dict[str, str]) -> None:
        made = rows.write.format("delta").mode(mode).options(**options)
        (made.partitionBy(DATE) if DATE in rows.columns else made).save(self._path)
