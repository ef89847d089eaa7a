"""Savepoints as tables, and tables as savepoints: what one writes the other reads, key by key."""

from __future__ import annotations

import asyncio
import tarfile
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import pytest

from tidegate import TTL, App, Context, Default, ListState, MapState, ValueState
from tidegate.client.log_access import LogAccess
from tidegate.errors import UnknownNameError, UsageError
from tidegate.host.host import Host
from tidegate_app.actions.savepoint import Savepoints, restore_options
from tidegate_spark import read_state, register_views, write_savepoint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Order(msgspec.Struct):
    what: str
    count: int = 1
    when: datetime | None = None


def shop() -> App:
    app = App(f"b{uuid.uuid4().hex[:8]}", partitions=3)
    orders = app.topic("orders", value_type=Order, key="what")

    @app.process(orders)
    async def till(
        ctx: Context,
        order: Order,
        last: ValueState[Order | None],
        sums: MapState[int, int],
        names: ListState[str],
        recent: Annotated[ValueState[int], Default(0), TTL(days=1)],
    ) -> None:
        seen = last.value
        last.value = Order(what=order.what, count=order.count + (seen.count if seen else 0))
        sums[order.count] = sums.get(order.count, 0) + 1
        names.append(f"n{order.count}")
        recent.value = order.count

    return app


NOON = datetime(2024, 2, 14, 12, tzinfo=UTC)


def test_a_written_savepoint_is_read(spark: SparkSession, tmp_path: Path) -> None:
    app, uri, flags = shop(), f"{tmp_path}/savepoints/history", {"data": tmp_path}
    numbers = spark.range(1000)
    when = "timestamp_millis(1707912000000)"
    last = numbers.selectExpr(
        "concat('k', id) as key", f"named_struct('what', concat('w', id), 'count', id, 'when', {when}) as value"
    )
    sums = numbers.selectExpr("concat('k', id % 100) as key", "id div 100 as entry", "id as value")
    names = numbers.selectExpr("concat('k', id % 10) as key", "id div 10 as index", "concat('n', id) as value")
    recent = numbers.selectExpr("concat('k', id) as key", "id as value")

    states = {"till": {"last": last, "sums": sums, "names": names, "recent": recent}}
    write_savepoint(spark, app, uri, states, flags=flags)

    for known in (app, None):  # by the code's types, and by those that the savepoint records
        rows = read_state(spark, uri, "till", "last", app=known).collect()
        assert {row.key: row.value["count"] for row in rows} == {f"k{n}": n for n in range(1000)}
        assert {row.task for row in rows} == {0, 1, 2}
    typed = read_state(spark, uri, "till", "last", app=app).first()
    assert typed.value.when.timestamp() == NOON.timestamp()
    rows = read_state(spark, uri, "till", "sums").collect()
    assert {(row.key, row.entry): row.value for row in rows} == {(f"k{n % 100}", n // 100): n for n in range(1000)}
    rows = read_state(spark, uri, "till", "names").where("key = 'k3'").orderBy("index").collect()
    assert [row.value for row in rows] == [f"n{n}" for n in range(3, 1000, 10)]
    rows = read_state(spark, uri, "till", "recent").collect()
    assert len(rows) == 1000
    assert all(row.expires_at > datetime.now() for row in rows)

    register_views(spark, app, savepoint=uri, flags={"data": tmp_path / "none"}, only="till_last till_sums")
    assert spark.sql("select sum(value) from till_sums").first()[0] == sum(range(1000))


def test_mismatched_data_is_refused_with_a_clear_error(spark: SparkSession, tmp_path: Path) -> None:
    app, uri, flags = shop(), f"{tmp_path}/savepoints/wrong", {"data": tmp_path}

    def write(**states: Any) -> None:
        write_savepoint(spark, app, uri, {"till": states}, flags=flags)

    with pytest.raises(UnknownNameError, match="of service 'till'"):
        write(nothing=spark.range(1).selectExpr("id as key", "id as value"))
    with pytest.raises(UsageError, match="without the column 'entry'"):
        write(sums=spark.range(1).selectExpr("id as key", "id as value"))
    with pytest.raises(Exception, match="is not of its type"):
        write(last=spark.range(1).selectExpr("id as key", "'text' as value"))
    with pytest.raises(Exception, match="two values for one key"):
        write(recent=spark.range(2).selectExpr("'same' as key", "id as value"))
    assert not Path(uri, "manifest.json").exists()  # half a savepoint is none


async def test_an_app_restores_a_savepoint_from_spark_and_spark_reads_the_apps_savepoint(
    spark: SparkSession, tmp_path: Path
) -> None:
    app, flags = shop(), {"data": tmp_path}
    uri = f"{tmp_path}/savepoints/history"
    frame = spark.range(100).selectExpr("concat('k', id) as key", "named_struct('what', 'old', 'count', id) as value")
    names = spark.range(300).selectExpr("concat('k', id % 100) as key", "id div 100 as index", "'old' as value")
    states = {"till": {"last": frame, "names": names}}
    await asyncio.to_thread(write_savepoint, spark, app, uri, states, flags=flags)
    savepoints = Savepoints(app.define(), flags)

    await savepoints.restore(uri, restore_options((), ["orders=earliest"], allow_dropped=False), app_id=None)
    app.host = host = Host(app.define, flags=flags)
    await host.start()
    running = asyncio.create_task(host.run())
    orders = app.topics["orders"]
    await orders.send_many([Order(what=f"k{n}", count=1000) for n in range(50)])
    while not await _all_seen(app, flags):  # noqa: ASYNC110  another process could ask no otherwise
        await asyncio.sleep(0.1)
    await savepoints.create("after", stop=False, timeout=60)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await host.stop()

    taken = f"{tmp_path}/{app.define().id}/savepoints/after"
    rows = await asyncio.to_thread(lambda: read_state(spark, taken, "till", "last").collect())
    assert {row.key: row.value["count"] for row in rows} == {f"k{n}": n + 1000 * (n < 50) for n in range(100)}
    items = await asyncio.to_thread(lambda: read_state(spark, taken, "till", "names").collect())
    found = sorted((row["index"], row["value"]) for row in items if row.key == "k3")
    assert found == [(0, "old"), (1, "old"), (2, "old"), (3, "n1000")]


async def _all_seen(app: App, flags: dict[str, Any]) -> bool:
    report = await LogAccess(app.define(), flags).report()
    return sum(task.lag for service in report.services for task in service.tasks) == 0


def test_maps_of_an_earlier_version_are_read_despite_another_key_encoding(spark: SparkSession, tmp_path: Path) -> None:
    earlier = Path(__file__).parents[1] / "integration" / "earlier" / "embedded.tar.xz"
    with tarfile.open(earlier) as archive:
        archive.extractall(tmp_path, filter="data")
    uri = str(tmp_path / ".tidegate" / "ledger" / "savepoints" / "middle")

    rows = read_state(spark, uri, "items", "seen").collect()
    assert len(rows) > 100
    assert all(row.key == ("broken" if -row.entry % 50 == 7 else f"i{-row.entry % 7}") for row in rows)
    assert {row.value for row in rows} == {1}
    assert len({row.entry for row in rows}) == len(rows)
