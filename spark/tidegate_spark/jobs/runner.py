"""Runs a job: one query per output, and one for the bad records of its inputs."""

from __future__ import annotations

import functools
import itertools
import json
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tidegate.faults import fault_point
from tidegate_spark.errors import JobFailedError, MissingJarsError, NoTableError
from tidegate_spark.jobs.contract import Job, Output, Source, Table, ToTopic
from tidegate_spark.jobs.delta import DeltaWriter
from tidegate_spark.jobs.error_reporting import Sink, reason, with_short_errors
from tidegate_spark.jobs.files import Files
from tidegate_spark.jobs.paths import TableLocations
from tidegate_spark.jobs.table_commit import TableWriter
from tidegate_spark.jobs.topics import records, send
from tidegate_spark.reading.tables import load_table
from tidegate_spark.reading.topics import FROM_TOPIC, stream_topic
from tidegate_spark.session.spark_session import has_class
from tidegate_spark.session.table_formats import DELTA, PARQUET, formats_of
from tidegate_spark.types.record_columns import Bad

if TYPE_CHECKING:
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

    from tidegate import App

__all__ = ("Progress", "run_job")

logger = logging.getLogger(__name__)

_POLL_SECONDS: Final = 0.2
"""Between two checks of the queries."""
_TRANSIENT: Final = ("Python worker failed to connect back",)
"""Transient failures: Spark gives a Python process ten seconds to start, which may be too short on a busy machine."""
_ATTEMPTS: Final = 5
_STARTING: Final = threading.Lock()
"""Queries of all jobs start one at a time: each starts Python processes, which must be ready within a timeout."""
_STARTING_STATES: Final = ("Initializing", "Getting offsets")
"""The status messages of a query until it has started."""
_START_SECONDS: Final = 60.0
_WRITERS: Final[Mapping[str, type[TableWriter] | type[DeltaWriter]]] = {PARQUET: TableWriter, DELTA: DeltaWriter}


@dataclass(frozen=True, kw_only=True)
class Progress:
    """The progress of a query by one micro-batch."""

    job: str
    output: str
    batch: int
    rows: int
    """Rows read."""
    seconds: float
    watermark: str | None


def run_job(
    spark: SparkSession,
    app: App,
    job: Job,
    *,
    once: bool = False,
    interval: str = "5 seconds",
    flags: Mapping[str, Any] | None = None,
    progress: Callable[[Progress], None] | None = None,
    stopping: Callable[[], bool] = lambda: False,
) -> None:
    """Run a job until `stopping`, or, with `once`, until the current input is processed. It resumes from its
    checkpoint.

    A job that reads only tables runs once, or repeatedly after each interval."""
    runner = _Runner(spark, app, job, flags)
    if job.streams:
        runner.stream(once, interval, progress or (lambda _: None), stopping)
    else:
        runner.batch(once, interval, progress or (lambda _: None), stopping)


class _Runner:
    def __init__(self, spark: SparkSession, app: App, job: Job, flags: Mapping[str, Any] | None) -> None:
        self._spark, self._app, self._job, self._flags = spark, app, job, flags
        self._places = TableLocations.of(app, flags)
        self._files = Files(spark, self._places.root)
        for made in formats_of(job.formats):
            if not has_class(spark, made.extension):
                raise MissingJarsError(f"{made.name} tables")

    # -- streams -----------------------------------------------------------------------------------------------------
    def stream(
        self, once: bool, interval: str, progress: Callable[[Progress], None], stopping: Callable[[], bool]
    ) -> None:
        trigger: dict[str, Any] = {"availableNow": True} if once else {"processingTime": interval}
        outputs = [*self._results(), (self._job.quarantine, self._bad())]
        started: dict[str, StreamingQuery] = {}
        starts = {output.name: functools.partial(self._start, output, frame, trigger) for output, frame in outputs}
        try:
            for name, start in starts.items():
                if stopping():
                    return
                started[name] = start()
                self._transient_failures(started)  # do not start further queries after a failure
            self._watch(started, starts, progress, stopping)
        finally:
            for query in started.values():
                query.stop()

    def _results(self) -> list[tuple[Output, DataFrame]]:
        return self._job.results([self._frame(given) for given in self._job.inputs])

    def _frame(self, given: Source | Table) -> DataFrame:
        if isinstance(given, Table):
            return load_table(self._spark, self._places, given.name)
        watermark = FROM_TOPIC if given.watermark == "" else given.watermark
        return self._stream(given, "drop", watermark)

    def _stream(self, given: Source, bad: Bad, watermark: str | None) -> DataFrame:
        return stream_topic(
            self._spark,
            self._app,
            given.name,
            bad=bad,
            watermark=watermark,
            schema=given.schema,
            flags=self._flags,
            options=dict(given.options),
        )

    def _bad(self) -> DataFrame:
        """The bad records of all its topics, with the error, their position, and their bytes."""
        frames = []
        for given in self._job.sources:
            kept = self._stream(given, "keep", None)
            key = F.col("key").cast("string")
            where = ("topic", "partition", "offset", "timestamp", key.alias("key"), "raw", "error", "run", "epoch")
            frames.append(kept.where(F.col("error").isNotNull()).select(*where))
        return functools.reduce(DataFrame.union, frames)

    def _start(self, output: Output, frame: DataFrame, trigger: Mapping[str, Any]) -> StreamingQuery:
        checkpoint = self._places.checkpoint(self._job.name, output.name)
        keyed = isinstance(output, Table) and bool(output.keys)
        try:
            with _STARTING:
                return _wait_for_start(self._writer(output, frame, checkpoint, keyed=keyed).trigger(**trigger).start())
        except (PySparkException, Py4JJavaError) as failure:
            raise JobFailedError(self._job.name, output.name, reason(failure)) from failure

    def _writer(self, output: Output, frame: DataFrame, checkpoint: str, *, keyed: bool) -> DataStreamWriter:
        return (
            frame.writeStream.queryName(f"{self._job.name}.{output.name}")
            .outputMode("update" if keyed else "append")
            .option("checkpointLocation", checkpoint)
            .foreachBatch(with_short_errors(self._sink(output, checkpoint)))
        )

    def _sink(self, output: Output, checkpoint: str) -> Sink:
        if isinstance(output, ToTopic):
            return lambda frame, _batch: self._send(frame, output)
        writer = self._table_writer(output)
        identity = f"{checkpoint}/metadata"

        def commit(frame: DataFrame, batch: int) -> None:
            # The table commits this batch durably, so Spark's record of the batch must be durable first.
            self._files.sync([identity, f"{checkpoint}/offsets/{batch}"], self._places.root)
            writer.commit(frame, batch, self._files.read_json(identity)["id"])

        return commit

    def _send(self, frame: DataFrame, output: ToTopic) -> None:
        send(records(frame, self._job.name, output), self._app, self._flags, output.name)
        fault_point("topic.sent")

    def _table_writer(self, table: Table) -> TableWriter | DeltaWriter:
        return _WRITERS[table.format](self._files, table, self._places.table(table.name))

    def _watch(
        self,
        queries: dict[str, StreamingQuery],
        starts: Mapping[str, Callable[[], StreamingQuery]],
        progress: Callable[[Progress], None],
        stopping: Callable[[], bool],
    ) -> None:
        seen: dict[str, int] = {}
        failures: Counter[str] = Counter()
        while True:
            active = any(query.isActive for query in queries.values())
            for query in queries.values():
                self._report_progress(query, seen, progress)
            for name, failure in self._transient_failures(queries).items():
                failures[name] += 1
                if failures[name] >= _ATTEMPTS:
                    raise self._failed(name, failure)
                queries[name], active = starts[name](), True
            if not active or stopping():
                return
            time.sleep(_POLL_SECONDS)

    def _transient_failures(self, queries: Mapping[str, StreamingQuery]) -> dict[str, PySparkException]:
        """The transient failures, of queries that can be restarted. JobFailedError: a query has failed permanently."""
        failures = {name: failure for name, query in queries.items() if (failure := query.exception()) is not None}
        for name, failure in failures.items():
            if not any(transient in str(failure) for transient in _TRANSIENT):
                raise self._failed(name, failure)
        return failures

    def _failed(self, output: str, failure: PySparkException) -> JobFailedError:
        error = JobFailedError(self._job.name, output, reason(failure))
        error.__cause__ = failure
        return error

    def _report_progress(
        self, query: StreamingQuery, seen: dict[str, int], progress: Callable[[Progress], None]
    ) -> None:
        for report in query.recentProgress:
            entry = report if isinstance(report, dict) else json.loads(report.json)
            if entry["batchId"] <= seen.get(query.name, -1) or not entry["numInputRows"]:
                continue
            seen[query.name] = entry["batchId"]
            progress(
                Progress(
                    job=self._job.name,
                    output=query.name.partition(".")[2],
                    batch=entry["batchId"],
                    rows=entry["numInputRows"],
                    seconds=entry["durationMs"].get("triggerExecution", 0) / 1000,
                    watermark=entry.get("eventTime", {}).get("watermark"),
                )
            )

    # -- batch jobs --------------------------------------------------------------------------------------------------
    def batch(
        self, once: bool, interval: str, progress: Callable[[Progress], None], stopping: Callable[[], bool]
    ) -> None:
        """Replace the outputs by results from the tables' current contents. If an input table does not exist yet, raise
        with `once`, otherwise retry after the interval."""
        for number in itertools.count():
            try:
                self._replace_all(number, progress)
            except NoTableError as error:
                if once:
                    raise
                logger.info("job %s is waiting: %s", self._job.name, error)
            if once or _wait(_seconds(interval), stopping):
                return

    def _replace_all(self, number: int, progress: Callable[[Progress], None]) -> None:
        for output, frame in self._results():
            began = time.monotonic()
            self._replace(output, frame)
            seconds = time.monotonic() - began
            progress(
                Progress(job=self._job.name, output=output.name, batch=number, rows=0, seconds=seconds, watermark=None)
            )

    def _replace(self, output: Output, frame: DataFrame) -> None:
        if isinstance(output, ToTopic):
            self._send(frame, output)
        else:
            self._table_writer(output).replace(frame)


def _wait_for_start(query: StreamingQuery) -> StreamingQuery:
    deadline = time.monotonic() + _START_SECONDS
    while query.isActive and query.status["message"].startswith(_STARTING_STATES) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS / 4)
    return query


def _wait(seconds: float, stopping: Callable[[], bool]) -> bool:
    """Wait. Returns whether the job is to stop."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if stopping():
            return True
        time.sleep(_POLL_SECONDS)
    return False


def _seconds(interval: str) -> float:
    amount, _, unit = interval.partition(" ")
    return float(amount) * {"s": 1, "m": 60, "h": 3600}.get(unit[:1] or "s", 1)
