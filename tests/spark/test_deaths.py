"""Queries that fail, and drivers that are killed, between any two steps of a commit: what they leave is exact."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from pyspark.errors import StreamingQueryException

from examples.tinder_match.app import app as tinder
from examples.tinder_match.app import likes
from examples.tinder_match.events import DAY, Like, Match
from examples.tinder_match.generator import LikeStream, Origin
from tests.faults.support.points import OF_SPARK
from tests.spark.shop import Shop, by_pyarrow, sales
from tests.spark.support import ran
from tests.spark.world import Expectation, compare_followed, read_values, rows_of
from tidegate.faults import InjectedFault, arm, disarm, parse
from tidegate_spark import Table, ToTopic, job, read_topic, run_job, stream_topic
from tidegate_spark.errors import JobFailedError
from tidegate_spark.jobs.error_reporting import Sink, with_short_errors
from tidegate_spark.jobs.files import Files
from tidegate_spark.jobs.table_commit import TableWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

STEPS = [point for point in OF_SPARK if point.startswith("table.") and point != "table.appended"]
"""Of tables in Parquet; those of Delta are in `test_delta`."""


@pytest.fixture
def suffer() -> Iterator[Callable[[str], None]]:
    """Arms faults in this process."""
    yield lambda faults: arm(parse(faults))
    disarm()


class Following:
    """A query with state that fills a table, without the rest of a job."""

    def __init__(self, spark: SparkSession, shop: Shop, directory: Path, table: Table) -> None:
        self.spark, self.shop, self.table = spark, shop, table
        self.flags, self.checkpoint = {"data": directory}, str(directory / "checkpoint")
        self.path = str(directory / shop.id / "tables" / table.name)

    def run(self) -> str:
        """Until it has read what is there; returns how it failed, if it did."""
        writer = TableWriter(Files(self.spark, self.path), self.table, self.path)
        query = (
            self.frame()
            .writeStream.outputMode("update" if self.table.keys else "append")
            .option("checkpointLocation", self.checkpoint)
            .foreachBatch(with_short_errors(lambda frame, batch: writer.commit(frame, batch, "q")))
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
        except StreamingQueryException as failure:
            return str(failure)
        return ""

    def frame(self) -> DataFrame:
        found = stream_topic(self.spark, self.shop.app, self.shop.sales.name, watermark=None, flags=self.flags)
        if self.table.keys:
            return found.groupBy("value.what").count()
        return found.select("value.*", "event_time").dropDuplicates(["id"])


@pytest.mark.parametrize(
    "key", [pytest.param((), id="added to", marks=pytest.mark.slow), pytest.param("what", id="keyed")]
)
def test_a_stateful_query_resumes_after_a_failure_at_any_step(
    spark: SparkSession, tmp_path: Path, suffer: Callable[[str], None], key: str | tuple[str, ...]
) -> None:
    shop = Shop()
    query = Following(spark, shop, tmp_path, Table("t", key=key, date=None))
    for number, step in enumerate(STEPS):
        ran(shop.app, query.flags, (shop.sales, sales(*range(number * 10, number * 10 + 12))))  # two are sent twice
        suffer(f"{step}:raise@1")
        assert step in query.run()
        disarm()
        assert query.run() == ""

        sent = list(range(number * 10 + 12))
        rows = by_pyarrow(query.flags, shop, "t")
        if key:
            seen = Counter(n for earlier in range(number + 1) for n in range(earlier * 10, earlier * 10 + 12))
            expected = Counter(sale.what for sale in sales(*seen.elements()))
            assert {row["what"]: row["count"] for row in rows} == expected
        else:
            assert sorted(row["id"] for row in rows) == sent


def test_replacing_a_file_removes_its_old_checksum(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    writer = TableWriter(Files(spark, path), Table("t", key="id", date=None), path)
    writer.commit(spark.range(3), 0, "q")
    writer.commit(spark.range(2, 5), 1, "q")

    assert list((tmp_path / "t").glob(".*.crc")) == []
    assert sorted(row.id for row in spark.read.parquet(path).collect()) == list(range(5))


def test_a_replaced_table_is_complete_after_the_next_run(
    spark: SparkSession, tmp_path: Path, suffer: Callable[[str], None]
) -> None:
    shop, flags = Shop(), {"data": tmp_path}
    ran(shop.app, flags, (shop.sales, sales(*range(12))))
    run_job(spark, shop.app, shop.collect, once=True, flags=flags)

    @job(inputs=Table("sales"), outputs=Table("copies", date="event_time"))
    def copy(rows: DataFrame) -> DataFrame:
        return rows.drop("date")

    for step in ("table.staged", "table.moved", "table.finished"):
        suffer(f"{step}:raise@1")
        with pytest.raises(InjectedFault):
            run_job(spark, shop.app, copy, once=True, flags=flags)
        disarm()
        found = [row["id"] for row in by_pyarrow(flags, shop, "copies")] if step != "table.staged" else []
        assert len(found) == len(set(found))
        run_job(spark, shop.app, copy, once=True, flags=flags)
        assert sorted(row["id"] for row in by_pyarrow(flags, shop, "copies")) == list(range(12))


def test_records_resent_to_a_topic_have_the_same_ids(
    spark: SparkSession, tmp_path: Path, suffer: Callable[[str], None]
) -> None:
    shop, flags = Shop(), {"data": tmp_path}
    ran(shop.app, flags, (shop.sales, sales(*range(9))))

    @job(inputs=shop.sales, outputs=ToTopic(shop.totals, key="what", id=("count",)))
    def tell(rows: DataFrame) -> DataFrame:
        return rows.select("value.what", rows["value.id"].alias("count"))

    suffer("topic.sent:raise@1")
    with pytest.raises(JobFailedError, match=r"topic\.sent"):
        run_job(spark, shop.app, tell, once=True, flags=flags)
    disarm()
    run_job(spark, shop.app, tell, once=True, flags=flags)

    sent = read_topic(spark, shop.app, shop.totals.name, flags=flags).collect()
    ids = Counter((row.value["count"], bytes(row.headers[0].value)) for row in sent)
    assert sorted(ids.values()) == [2] * 9
    assert {number for number, _ in ids} == set(range(9))


# ------------------------------------------------------------------------------------------- what Spark is told of it


def following(spark: SparkSession, directory: Path, sink: Sink) -> StreamingQuery:
    rows = spark.readStream.format("rate").load()
    writer = rows.writeStream.option("checkpointLocation", str(directory / "checkpoint"))
    return writer.foreachBatch(with_short_errors(sink)).start()


def test_a_failure_with_a_long_java_trace_is_reported_while_the_query_stops(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    java: Any = spark.sparkContext._jvm
    entered, leave = threading.Event(), threading.Event()

    def sink(_frame: DataFrame, _batch: int) -> None:
        entered.set()
        leave.wait(60)
        java.java.lang.Class.forName("x" * 60_000)

    query = following(spark, tmp_path, sink)
    assert entered.wait(60)
    threading.Timer(1.0, leave.set).start()
    query.stop()

    assert "ClassNotFoundException" in str(query.exception())
    assert "StackOverflowError" not in capfd.readouterr().err


def test_a_query_stopped_within_a_batch_is_not_a_failure(spark: SparkSession, tmp_path: Path) -> None:
    entered = threading.Event()

    def sink(frame: DataFrame, _batch: int) -> None:
        entered.set()
        frame.sparkSession.range(1).selectExpr("java_method('java.lang.Thread', 'sleep', 60000L)").collect()

    query = following(spark, tmp_path, sink)
    assert entered.wait(60)
    query.stop()

    assert query.exception() is None


# ----------------------------------------------------------------------------------------------------------- processes


def drive(directory: Path, faults: str, log: Path) -> subprocess.CompletedProcess[str]:
    """A driver that reads what is there, or dies on the way."""
    command = ["pipeline", "run", "examples.tinder_match.pipeline", "collect", "windows", "--once"]
    where = ["--data", str(directory), "--spark-master", "local[2]"]
    settings = ["--conf", "spark.sql.shuffle.partitions=2"]
    return subprocess.run(
        [sys.executable, "-m", "tidegate_app", *command, *where, *settings],
        env={**os.environ, "TIDEGATE_FAULTS": faults, "TIDEGATE_FAULTS_LOG": str(log)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_tables_stay_exact_when_drivers_are_killed_at_every_step(tmp_path: Path) -> None:
    flags, log = {"data": tmp_path}, tmp_path / "faults"
    stream, sent = LikeStream(11, Origin()), list[Like]()
    deaths = [f"{step}:kill@{nth}" for step in STEPS for nth in (1, 4)]
    for death in deaths:
        new = stream.next(300, DAY)
        ran(tinder, flags, (likes, new))
        sent += new
        killed = drive(tmp_path, death, log)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
    done = drive(tmp_path, "", log)

    assert done.returncode == 0, done.stderr
    assert log.read_text().splitlines() == deaths
    expectation, tables = Expectation(sent), tmp_path / "tinder" / "tables"
    # Not the fold's: at the end of each bounded run the service forgets who has not been answered.
    expectation.matches = [
        msgspec.json.decode(value, type=Match) for value in asyncio.run(read_values("matches", flags))
    ]
    assert expectation.matches
    compare_followed(expectation, lambda name: rows_of(tables / name))
