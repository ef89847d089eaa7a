"""`tidegate sql`: runs a query once, or continuously as a streaming job."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from tidegate.errors import UsageError
from tidegate_app.actions.pipeline import print_progress, stop_signals
from tidegate_app.app_loader import load_app
from tidegate_app.output import note, print_table, write_lines

__all__ = ("SqlCommand",)


class SqlCommand:
    """One query."""

    def __init__(self, target: str, flags: Mapping[str, Any], options: Mapping[str, Any]) -> None:
        from tidegate_spark.session.spark_session import check_installed

        check_installed()
        if options["stream"] != bool(options["to"]):
            raise UsageError("--stream and --to belong together: a continuous query needs a target")
        self._app, self._flags, self._options = load_app(target), flags, options

    def run(self, query: str) -> None:
        from tidegate_spark.jobs.paths import TableLocations
        from tidegate_spark.session.spark_session import session
        from tidegate_spark.session.table_formats import formats_in

        settings = self._app.define().resolve(self._flags).settings
        jars = self._options["jars"]
        with session(
            f"tidegate sql {self._app.define().id}",
            master=settings.spark_master,
            kafka=settings.broker.startswith("kafka://"),
            formats=formats_in(TableLocations.of(self._app, self._flags).root),
            jars=jars.split(",") if jars else (),
        ) as spark:
            if self._options["stream"]:
                self._run_continuously(spark, query)
            else:
                self._run_once(spark, query)

    def _run_once(self, spark: Any, query: str) -> None:
        from tidegate_spark.sql import explained, register_views

        listing = query.strip().lower().startswith(("show", "describe"))
        register_views(
            spark,
            self._app,
            savepoint=self._options["savepoint"],
            flags=self._flags,
            only=None if listing else query,
        )
        frame = explained(lambda: spark.sql(query))
        limit = self._options["limit"]
        rows = [row.asDict(recursive=True) for row in frame.limit(limit + 1).collect()]
        if len(rows) > limit:
            note(f"There are more than {limit} rows: --limit N shows more.")
        self._print(frame.columns, rows[:limit])

    def _print(self, columns: list[str], rows: list[dict[str, Any]]) -> None:
        if self._options["as_json"]:
            write_lines(_plain(row) for row in rows)
            return
        print_table(
            columns, [["" if row[name] is None else str(_plain(row[name])) for name in columns] for row in rows]
        )

    def _run_continuously(self, spark: Any, query: str) -> None:
        from tidegate_spark.jobs.runner import run_job
        from tidegate_spark.sql import explained, sql_job

        stopping = threading.Event()
        job = sql_job(
            spark,
            self._app,
            query,
            self._options["to"],
            name=self._options["name"] or "",
            key=tuple(filter(None, (self._options["key"] or "").split(","))),
            date=self._options["date"],
            flags=self._flags,
        )
        note(f"Running {job.name}: {', '.join(given.name for given in job.inputs)} to {self._options['to']}.")
        with stop_signals(stopping):
            explained(
                lambda: run_job(
                    spark,
                    self._app,
                    job,
                    once=self._options["once"],
                    flags=self._flags,
                    progress=print_progress,
                    stopping=stopping.is_set,
                )
            )


def _cell(value: Any) -> str:
    return "" if value is None else str(_plain(value))


def _plain(value: Any) -> Any:
    """A value as JSON types; bytes as text."""
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).decode(errors="replace")
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value if isinstance(value, (str, int, float, bool)) or value is None else str(value)
