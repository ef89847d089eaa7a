"""Jobs: exactly once into plain Parquet, whatever dies in between; bad records aside; and back into a topic."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow.dataset as ds
import pytest

from tests.spark.shop import Sale, Shop, by_pyarrow, sales
from tests.spark.support import ran
from tidegate import App, EventTime
from tidegate_app.kafka.plugin import SharedKafka
from tidegate_spark import Job, Table, ToTopic, job, read_table, read_topic, run_job
from tidegate_spark.errors import JobDefinitionError, JobFailedError, MissingJarsError, NoTableError
from tidegate_spark.jobs.contract import find_jobs
from tidegate_spark.jobs.files import Files
from tidegate_spark.jobs.runner import _Runner
from tidegate_spark.jobs.status import job_progress
from tidegate_spark.jobs.table_commit import TableWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(params=["embedded", "kafka"])
def flags(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    if request.param == "embedded":
        return {"data": tmp_path}
    broker: SharedKafka = request.getfixturevalue("kafka")
    return {"data": tmp_path, "broker": broker.url}


@pytest.mark.parametrize("flags", [pytest.param("embedded", marks=pytest.mark.slow), "kafka"], indirect=True)
def test_jobs_resume_at_their_position_and_add_each_record_once(spark: SparkSession, flags: dict[str, Any]) -> None:
    shop = Shop()
    told: list[Any] = []
    for first in (0, 30):
        ran(shop.app, flags, (shop.sales, sales(*range(first, first + 30))))
        for each in (shop.collect, shop.counts):
            run_job(spark, shop.app, each, once=True, flags=flags, progress=told.append)

    rows = by_pyarrow(flags, shop, "sales")
    assert sorted(row["id"] for row in rows) == list(range(60))
    assert {row["date"] for row in rows} == {row["event_time"].date().isoformat() for row in rows}
    assert sorted(row.id for row in read_table(spark, shop.app, "sales", flags=flags).collect()) == list(range(60))
    expected = Counter(sale.what for sale in sales(*range(60)))
    assert {row["what"]: row["count"] for row in by_pyarrow(flags, shop, "counts")} == expected
    assert [(each.job, each.rows) for each in told if each.output == "sales"] == [("collect", 30)] * 2

    run_job(spark, shop.app, shop.publish, once=True, flags=flags)
    run_job(spark, shop.app, shop.publish, once=True, flags=flags)  # as after a crash: all comes again
    sent = read_topic(spark, shop.app, shop.totals.name, flags=flags).collect()
    assert {row.key: row.value["count"] for row in sent} == expected
    ids = Counter(bytes(header.value) for row in sent for header in row.headers if header.key == "tidegate-id")
    assert sorted(ids.values()) == [2, 2, 2]  # by its id one can tell that it came before


async def test_status_shows_the_progress_of_jobs(spark: SparkSession, tmp_path: Path) -> None:
    import asyncio

    shop, flags = Shop(), {"data": tmp_path}
    await asyncio.to_thread(ran, shop.app, flags, (shop.sales, sales(*range(10))))
    before = await job_progress(shop.app, [shop.collect], flags)
    await asyncio.to_thread(run_job, spark, shop.app, shop.collect, once=True, flags=flags)
    after = await job_progress(shop.app, [shop.collect], flags)

    assert before[0]["batches"] == 0
    assert before[0]["behind"] >= 10
    assert [(row["output"], row["batches"], row["behind"]) for row in after] == [
        ("sales", 1, 0),
        ("quarantine_collect", 1, 0),
    ]
    assert after[0]["files"] > 1
    assert after[1]["files"] == 0


def test_bad_records_are_quarantined_and_the_job_continues(spark: SparkSession, tmp_path: Path) -> None:
    shop, flags = Shop(), {"data": tmp_path}
    ran(shop.app, flags, (shop.raw, [b'{"id":1,"what":"a","at":5}', b"broken", b'{"id":2}']))
    typed = App(shop.id)
    topic = typed.topic(shop.raw.name, value_type=Sale, time=EventTime("at"))

    @job(inputs=topic, outputs=Table("good"))
    def sift(frame: DataFrame) -> DataFrame:
        return frame.select("value.*", "event_time")

    run_job(spark, typed, sift, once=True, flags=flags)

    assert [row["id"] for row in by_pyarrow(flags, shop, "good")] == [1]
    bad = by_pyarrow(flags, shop, "quarantine_sift")
    assert {(row["topic"], row["raw"], row["error"]) for row in bad} == {
        (topic.name, b"broken", "it is not JSON of the declared type"),
        (topic.name, b'{"id":2}', "the field what is missing"),
    }


class Wider(msgspec.Struct):
    id: int
    what: str
    at: int
    price: float = 1.5


def test_an_added_field_does_not_break_existing_tables(spark: SparkSession, tmp_path: Path) -> None:
    flags = {"data": tmp_path}
    old = Shop()
    ran(old.app, flags, (old.sales, sales(*range(6))))
    for each in (old.collect, old.counts):
        run_job(spark, old.app, each, once=True, flags=flags)
    new = Shop(Wider, old.id)
    wide = [Wider(id=n, what="new", at=1_700_000_000_000, price=2.5) for n in (6, 7)]
    ran(new.app, flags, (new.sales, wide))
    for each in (new.collect, new.counts):
        run_job(spark, new.app, each, once=True, flags=flags)

    rows = {row.id: row.price for row in read_table(spark, new.app, "sales", flags=flags).collect()}
    assert rows == {**dict.fromkeys(range(6)), 6: 2.5, 7: 2.5}  # null: the column is younger than the row
    assert {row["id"] for row in by_pyarrow(flags, new, "sales")} == set(range(8))
    assert {row["what"]: row["count"] for row in by_pyarrow(flags, new, "counts")} == {
        "w0": 2, "w1": 2, "w2": 2, "new": 2,
    }  # fmt: skip
    again = read_topic(spark, new.app, new.sales.name, flags=flags).where("value.id < 6").collect()
    assert {row.value.price for row in again} == {1.5}  # records without it have the default


@contextmanager
def running(spark: SparkSession, shop: Shop, made: Job, flags: dict[str, Any]) -> Iterator[None]:
    """A job that runs until the block ends."""
    stopping, failures = threading.Event(), list[BaseException]()

    def run() -> None:
        try:
            run_job(spark, shop.app, made, interval="0.2 seconds", flags=flags, stopping=stopping.is_set)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()
    assert failures == []


def wait_for(ids: set[int], flags: dict[str, Any], shop: Shop) -> None:
    deadline = time.monotonic() + 120
    while {row["id"] for row in by_pyarrow(flags, shop, "sales")} != ids:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_an_added_field_does_not_break_a_running_job(spark: SparkSession, kafka: SharedKafka, tmp_path: Path) -> None:
    flags = {"data": tmp_path, "broker": kafka.url}
    old = Shop()
    ran(old.app, flags, (old.sales, sales(*range(6))))
    run_job(spark, old.app, old.collect, once=True, flags=flags)
    new = Shop(Wider, old.id)

    def wide(*ids: int) -> list[Wider]:
        return [Wider(id=n, what="new", at=1_700_000_000_000, price=2.5) for n in ids]

    with running(spark, old, old.collect, flags):
        ran(new.app, flags, (new.sales, wide(6, 7)))  # the services have the new type, the job has the old one
        wait_for(set(range(8)), flags, old)
        ran(old.app, flags, (old.sales, sales(8)))  # and back
        wait_for(set(range(9)), flags, old)
    ran(new.app, flags, (new.sales, wide(9)))
    run_job(spark, new.app, new.collect, once=True, flags=flags)

    rows = {row.id: row.price for row in read_table(spark, new.app, "sales", flags=flags).collect()}
    assert rows == {**dict.fromkeys(range(9)), 9: 2.5}  # the job that was running did not know of prices
    assert sorted(row["id"] for row in by_pyarrow(flags, new, "sales")) == list(range(10))
    assert by_pyarrow(flags, new, "quarantine_collect") == []


def test_a_missing_checkpoint_is_detected(spark: SparkSession, tmp_path: Path) -> None:
    shop, flags = Shop(), {"data": tmp_path}
    ran(shop.app, flags, (shop.sales, sales(1)))
    run_job(spark, shop.app, shop.collect, once=True, flags=flags)
    shutil.rmtree(tmp_path / shop.id / "tables" / "_jobs")

    with pytest.raises(JobFailedError, match="would lose or duplicate records"):
        run_job(spark, shop.app, shop.collect, once=True, flags=flags)
    assert [row["id"] for row in by_pyarrow(flags, shop, "sales")] == [1]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The outputs whose queries were started."""
    names: list[str] = []
    start = _Runner._start

    def noted(self: _Runner, output: Any, frame: DataFrame, trigger: Any) -> Any:
        names.append(output.name)
        return start(self, output, frame, trigger)

    monkeypatch.setattr(_Runner, "_start", noted)
    return names


@pytest.mark.parametrize("damaged", ["offsets/0", "metadata"], ids=["it has failed", "it does not start"])
def test_no_query_starts_after_a_failed_one(
    spark: SparkSession, tmp_path: Path, started: list[str], damaged: str
) -> None:
    shop, flags = Shop(), {"data": tmp_path}

    @job(inputs=shop.sales, outputs=(Table("first"), Table("second")))
    def both(sales: DataFrame) -> tuple[DataFrame, DataFrame]:
        rows = sales.select("value.*", "event_time")
        return rows, rows

    ran(shop.app, flags, (shop.sales, sales(1)))
    run_job(spark, shop.app, both, once=True, flags=flags)
    assert started == ["first", "second", both.quarantine.name]
    checkpoint = tmp_path / shop.id / "tables" / "_jobs" / "both" / "first"
    (checkpoint / damaged).write_text("no such thing")
    (checkpoint / damaged).with_name(f".{Path(damaged).name}.crc").unlink(missing_ok=True)
    started.clear()

    with pytest.raises(JobFailedError, match="'both' failed in the query for its output 'first'") as raised:
        run_job(spark, shop.app, both, once=True, flags=flags)
    assert raised.value.output == "first"
    assert started == ["first"]
    assert [query.name for query in spark.streams.active] == []


def test_a_stopping_job_starts_no_queries(spark: SparkSession, tmp_path: Path, started: list[str]) -> None:
    """As when another one of the same command has failed."""
    shop, flags = Shop(), {"data": tmp_path}
    ran(shop.app, flags, (shop.sales, sales(1)))
    run_job(spark, shop.app, shop.collect, flags=flags, stopping=lambda: True)
    assert started == []


@pytest.mark.slow
def test_a_stateful_query_resumes_after_a_crash_between_its_table_commit_and_its_checkpoint(
    spark: SparkSession, flags: dict[str, Any]
) -> None:
    """`test_deaths` has this moment, too: its step table.committed."""
    shop = Shop()
    commits = Path(flags["data"]) / shop.id / "tables" / "_jobs" / "counts" / "counts" / "commits"
    for first in (0, 30, 60):
        ran(shop.app, flags, (shop.sales, sales(*range(first, first + 30))))
        run_job(spark, shop.app, shop.counts, once=True, flags=flags)
        newest = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
        (commits / str(newest)).unlink()  # the rows are in the table, and Spark does not know it
        (commits / f".{newest}.crc").unlink(missing_ok=True)
    run_job(spark, shop.app, shop.counts, once=True, flags=flags)

    expected = Counter(sale.what for sale in sales(*range(90)))
    assert {row["what"]: row["count"] for row in by_pyarrow(flags, shop, "counts")} == expected


class Stopped(Exception):
    """As if the driver had died here."""


class Dying(Files):
    """A file system whose user dies at the n-th move."""

    def __init__(self, spark: SparkSession, root: str, at: int) -> None:
        super().__init__(spark, root)
        self._left = at

    def move(self, source: str, target: str) -> None:
        if self._left == 0:
            raise Stopped
        self._left -= 1
        super().move(source, target)


@pytest.mark.parametrize("key", [(), ("id",)], ids=["added to", "keyed"])
def test_a_batch_committed_again_after_a_crash_is_stored_once(
    spark: SparkSession, tmp_path: Path, key: tuple[str, ...]
) -> None:
    frame = spark.createDataFrame([(n, f"2024-01-0{n % 4 + 1}") for n in range(20)], "id int, day string")
    table, path = Table("t", key=key, date="day"), str(tmp_path / "t")
    TableWriter(Files(spark, path), table, path).commit(frame.where("id < 4"), 0, "q")
    for death in range(12):
        try:
            TableWriter(Dying(spark, path, death), table, path).commit(frame.where("id >= 4"), 1, "q")
        except Stopped:
            seen = ids(tmp_path)
            assert len(seen) == len(set(seen))
            assert {0, 1, 2, 3} <= set(seen)
        else:
            break

    assert death >= 3  # it has died on the way
    assert sorted(ids(tmp_path)) == list(range(20))


@pytest.fixture
def story(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Path]]:
    """What is synced, and what is moved where, in their order."""
    told: list[tuple[str, Path]] = []
    sync, move = os.fsync, os.replace

    def syncing(descriptor: int) -> None:
        told.append(("sync", Path(os.readlink(f"/proc/self/fd/{descriptor}"))))
        sync(descriptor)

    def moving(source: Path, target: Path) -> None:
        told.append(("move", Path(target)))
        move(source, target)

    monkeypatch.setattr(os, "fsync", syncing)
    monkeypatch.setattr(os, "replace", moving)
    return told


@pytest.mark.parametrize("key", [(), ("id",)], ids=["added to", "keyed"])
def test_a_batch_is_synced_before_its_commit_and_moved_into_place_before_it_is_reported(
    spark: SparkSession, tmp_path: Path, key: tuple[str, ...], story: list[tuple[str, Path]]
) -> None:
    """A power cut, unlike a kill, loses what was not synced."""
    frame = spark.createDataFrame([(n, f"2024-01-0{n % 2 + 1}") for n in range(8)], "id int, day string")
    table, path = Table("t", key=key, date="day"), tmp_path / "t"
    writer = TableWriter(Files(spark, str(path)), table, str(path))
    for batch in range(2):
        story.clear()
        writer.commit(frame, batch, "q")
        own = path / "_tidegate"
        plan = story.index(("move", own / "plans" / f"{batch:010d}.json"))
        first = next(at for at, (what, where) in enumerate(story) if what == "move" and where.suffix == ".parquet")
        last = max(at for at, (what, _) in enumerate(story) if what == "move")
        synced = [where for what, where in story[:plan] if what == "sync"]
        days = {"date=2024-01-01", "date=2024-01-02"}
        rows = [where for where in synced if where.suffix == ".parquet"]
        assert {where.parent.name for where in rows} == days
        assert {where.parent for where in rows} | {rows[0].parents[1], own / "attempts", own} <= set(synced)
        assert any(where.parent == own / "plans" for where in synced)
        assert ("sync", own / "plans") in story[plan:first], "the plan, before what it says is done"
        assert {where.name for what, where in story[last:] if what == "sync"} == days
        if batch:  # and nothing had to be made: two files, seven directories, the plan and its directory
            assert len([what for what, _ in story if what == "sync"]) == 11


def test_a_batchs_description_is_synced_before_its_table_changes(
    spark: SparkSession, tmp_path: Path, story: list[tuple[str, Path]]
) -> None:
    """Spark would make another batch of the same number, with more in it, of which the table would take nothing."""
    shop, flags = Shop(), {"data": tmp_path}
    ran(shop.app, flags, (shop.sales, sales(1)))
    run_job(spark, shop.app, shop.collect, once=True, flags=flags)

    tables = tmp_path / shop.id / "tables"
    plan = story.index(("move", tables / "sales" / "_tidegate" / "plans" / "0000000000.json"))
    offsets = tables / "_jobs" / "collect" / "sales" / "offsets"
    assert {("sync", offsets / "0"), ("sync", offsets), ("sync", offsets.parent)} <= set(story[:plan])


def ids(directory: Path) -> list[int]:
    return [row["id"] for row in ds.dataset(directory / "t", partitioning="hive").to_table().to_pylist()]


def test_a_continuous_job_waits_for_missing_tables(spark: SparkSession, tmp_path: Path) -> None:
    shop, flags, told, looks = Shop(), {"data": tmp_path}, list[Any](), list[int]()
    ran(shop.app, flags, (shop.sales, sales(*range(9))))

    def stopping() -> bool:
        looks.append(len(told))
        if len(looks) == 1:
            run_job(spark, shop.app, shop.counts, once=True, flags=flags)  # now there is one
        return bool(told)

    run_job(spark, shop.app, shop.publish, interval="0.1 s", flags=flags, progress=told.append, stopping=stopping)

    assert looks[0] == 0
    sent = read_topic(spark, shop.app, shop.totals.name, flags=flags).collect()
    assert {row.key: row.value["count"] for row in sent} == {"w0": 3, "w1": 3, "w2": 3}


def test_a_table_never_written_gives_a_clear_error(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(NoTableError, match="run the job that writes it first"):
        read_table(spark, Shop().app, "nothing", flags={"data": tmp_path})


def test_a_format_without_its_jars_gives_a_clear_error(spark: SparkSession, tmp_path: Path) -> None:
    shop = Shop()
    made = job("x", inputs=shop.sales, outputs=Table("t", format="delta"))(lambda frame: frame)
    with pytest.raises(MissingJarsError, match="lacks the jars for delta tables"):
        run_job(spark, shop.app, made, once=True, flags={"data": tmp_path})


def test_an_invalid_job_is_refused_at_declaration() -> None:
    shop = Shop()
    with pytest.raises(JobDefinitionError, match="inputs are topics"):
        job("x", inputs="sales", outputs=Table("t"))(lambda frame: frame)
    with pytest.raises(JobDefinitionError, match="outputs are Table"):
        job("x", inputs=shop.sales, outputs="t")(lambda frame: frame)
    with pytest.raises(JobDefinitionError, match="is not a valid name of a table"):
        Table("../t")
    with pytest.raises(JobDefinitionError, match="name its column"):
        ToTopic(shop.totals)
    with pytest.raises(JobDefinitionError, match="there is no format 'orc' for tables; known: parquet, delta"):
        Table("t", format="orc")
    with pytest.raises(JobDefinitionError, match=r"Iceberg has no release for Spark 4\.2"):
        Table("t", format="iceberg")
    with pytest.raises(JobDefinitionError, match="leave out the key"):
        Table("t", key="id", format="delta")
    with pytest.raises(JobDefinitionError, match="returned 1 frames"):
        job("x", inputs=shop.sales, outputs=[Table("a"), Table("b")])(lambda frame: frame).results([None])


def test_a_class_can_be_a_job() -> None:
    shop = Shop()

    class DailySales(Job):
        """Sales by day."""

        inputs = (shop.sales,)
        outputs = (Table("daily"),)

    import types

    module = types.ModuleType("m")
    module.DailySales = DailySales  # type: ignore[attr-defined]
    found = find_jobs(module)
    assert {name: made.description for name, made in found.items()} == {"daily_sales": "Sales by day."}
