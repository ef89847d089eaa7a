"""Exactly-once commits of micro-batches to Parquet tables, for every reader of the files.

Spark's own sink keeps a list of its files that only Spark reads; other readers also see the files of failed attempts.
Here a table contains committed files only:

1. Check that the table belongs to this query: the batch numbers of another checkpoint would not match.
2. A batch with a plan is committed: finish its moves. Spark repeats a batch, with the same input, when its driver died
   before it recorded the batch as done. The rows are computed all the same, and dropped, because Spark needs the
   query's state (windows, counts) after the batch.
3. Otherwise write the rows to a directory of this attempt, which readers ignore (`_tidegate/`), and sync them.
4. Write the plan, the list of moves. This is the commit point: one durable rename.
5. Move each file into place. Each appears whole; those of one batch appear one by one. Sync the directories.
6. Delete the remains of attempts.

So no row is ever seen twice, and no visible row disappears. A table with a key has one file per day, which step 3
rewrites together with the other rows of that day, and step 5 replaces.
"""

from __future__ import annotations

import uuid
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as t

from tidegate.faults import fault_point
from tidegate_spark.jobs.contract import Table
from tidegate_spark.jobs.files import Files, joined
from tidegate_spark.jobs.ownership import DATE, OWN, check_owner, computed, dated

__all__ = ("TableWriter",)

_KEPT: Final = 100
"""The number of plans that are kept; Spark keeps its records of as many batches."""


class TableWriter:
    """Commits the batches of one query to one table."""

    def __init__(self, files: Files, table: Table, path: str) -> None:
        self._files, self._table, self._path = files, table, path
        self._own = joined(path, OWN)

    def commit(self, frame: DataFrame, batch: int, writer: str) -> None:
        """`writer`: the id of the query, from its checkpoint."""
        check_owner(self._files, self._path, writer)
        fault_point("table.owned")
        plan = joined(self._own, "plans", f"{batch:010d}.json")
        if self._files.exists(plan):
            computed(frame)
        else:
            attempt = joined(self._own, "attempts", f"{batch:010d}-{uuid.uuid4().hex[:12]}")
            self._write(dated(self._table, frame), attempt)
            fault_point("table.staged")
            moves = self._staged(attempt, "rows" if self._table.keys else f"batch-{batch:010d}")
            self._files.write_json(plan, {"batch": batch, "moves": moves})
            fault_point("table.planned")
        self._finish(self._files.read_json(plan))
        fault_point("table.finished")
        self._clean()
        fault_point("table.committed")

    def replace(self, frame: DataFrame) -> None:
        """Replace the table's contents, for a batch job: days that are not in the new contents are deleted.

        A crash in between leaves days of both; the next run of the job replaces all of them."""
        attempt = joined(self._own, "attempts", f"all-{uuid.uuid4().hex[:12]}")
        self._stage(dated(self._table, frame), attempt)
        fault_point("table.staged")
        moves = self._staged(attempt, "rows")
        self._finish({"moves": moves})
        kept = {target for _, target in moves}
        for name in list(self._files.below(self._path)):
            if joined(self._path, name) not in kept:
                self._files.remove(joined(self._path, name))
        fault_point("table.finished")
        self._files.remove(joined(self._own, "attempts"))

    # -- steps -------------------------------------------------------------------------------------------------------
    def _write(self, frame: DataFrame, attempt: str) -> None:
        if not self._table.keys:
            self._stage(frame, attempt)
            return
        changed = frame.dropDuplicates(list(self._table.keys)).persist()
        try:
            self._stage(self._with_known(changed), attempt)
        finally:
            changed.unpersist()

    def _stage(self, frame: DataFrame, attempt: str) -> None:
        divided = DATE in frame.columns
        frame = frame.repartition(DATE) if divided else frame.coalesce(1)
        writer = frame.write.mode("overwrite").option("maxRecordsPerFile", 0 if self._table.keys else 5_000_000)
        (writer.partitionBy(DATE) if divided else writer).parquet(attempt)

    def _with_known(self, changed: DataFrame) -> DataFrame:
        """The batch's rows, and the other rows of the same days."""
        days = [row[0] for row in changed.select(DATE).distinct().collect()] if DATE in changed.columns else [None]
        files = [joined(self._day(day), "rows.parquet") for day in days]
        known = [file for file in files if self._files.exists(file)]
        if not known:
            return changed
        stored = changed.sparkSession.read.option("basePath", self._path).option("mergeSchema", "true").parquet(*known)
        if DATE in stored.columns:
            stored = stored.withColumn(DATE, F.col(DATE).cast(t.DateType()))
        others = stored.join(changed.select(*self._table.keys), list(self._table.keys), "left_anti")
        return changed.unionByName(others, allowMissingColumns=True)

    def _day(self, day: Any) -> str:
        return self._path if day is None and self._table.date is None else joined(self._path, _directory(day))

    def _staged(self, attempt: str, stem: str) -> list[list[str]]:
        """The moves of the staged files, which are synced."""
        moves = self._moves(attempt, stem)
        self._files.sync([source for source, _ in moves], self._own)
        return moves

    def _moves(self, attempt: str, stem: str) -> list[list[str]]:
        """The target of each file. A day has one file, except for very large batches."""
        moves, taken = [], set[str]()
        for name in _data(self._files, attempt):
            directory = name.rpartition("/")[0]
            target = joined(self._path, *filter(None, (directory, f"{stem}.parquet")))
            if target in taken:
                target = target.replace(".parquet", f"-{len(taken):04d}.parquet")
            taken.add(target)
            moves.append([joined(attempt, name), target])
        return moves

    def _finish(self, plan: dict[str, Any]) -> None:
        for source, target in plan["moves"]:
            if self._files.exists(source):  # otherwise it has been moved already
                self._files.move(source, target)
                fault_point("table.moved")
        self._files.sync_renames(target for _, target in plan["moves"])

    def _clean(self) -> None:
        self._files.remove(joined(self._own, "attempts"))
        for name in self._files.names(joined(self._own, "plans"))[:-_KEPT]:
            self._files.remove(joined(self._own, "plans", name))


def _data(files: Files, directory: str) -> list[str]:
    return [name for name in files.below(directory) if name.endswith(".parquet")]


def _directory(day: Any) -> str:
    return f"{DATE}={'__HIVE_DEFAULT_PARTITION__' if day is None else day}"
