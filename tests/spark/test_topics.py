"""Topics as DataFrames: the same rows on the embedded log and on Kafka, typed, committed records only."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from tests.spark.support import ran
from tidegate import App, BoundedOutOfOrderness, Context, EventTime, Punctuated
from tidegate.errors import UnknownNameError
from tidegate.logs.base import TopicSpec
from tidegate.logs.embedded import EmbeddedLog
from tidegate_app.kafka.plugin import SharedKafka
from tidegate_spark import read_topic, stream_topic
from tidegate_spark.errors import EventTypeError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Order(msgspec.Struct):
    id: int
    who: str
    at: int
    tags: list[str] = []
    note: str = "none"


class Receipt(msgspec.Struct):
    order: int
    total: float


class Shop:
    """An app with one service, on names of its own."""

    def __init__(self, **topic: Any) -> None:
        self.id = f"shop{uuid.uuid4().hex[:8]}"
        self.app = App(self.id, partitions=2, time=EventTime("at"), watermark=BoundedOutOfOrderness(by=10))
        self.orders = self.app.topic(f"{self.id}-orders", value_type=Order, key="who", **topic)
        self.receipts = self.app.topic(f"{self.id}-receipts", value_type=Receipt, time=EventTime())
        self.raw = self.app.topic(f"{self.id}-raw", value_type=bytes, time=EventTime())

        @self.app.process(self.orders, to=self.receipts)
        async def till(ctx: Context, order: Order) -> None:
            ctx.emit(Receipt(order=order.id, total=order.id * 1.5))


@pytest.fixture(params=["embedded", "kafka"])
def flags(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """Where the log is."""
    if request.param == "embedded":
        return {"data": tmp_path}
    broker: SharedKafka = request.getfixturevalue("kafka")
    return {"data": tmp_path, "broker": broker.url}


ORDERS = [Order(id=n, who=f"p{n % 7}", at=1_700_000_000_000 + n * 1000) for n in range(50)]


def collected(frame: DataFrame, place: Path) -> list[Any]:
    """What a stream gives until it has read everything."""
    found: list[Any] = []
    query = (
        frame.writeStream.foreachBatch(lambda batch, _number: found.extend(batch.collect()))
        .option("checkpointLocation", str(place))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return found


def test_topics_are_typed_frames_with_their_records_origin(
    spark: SparkSession, flags: dict[str, Any], tmp_path: Path
) -> None:
    shop = Shop()
    ran(shop.app, flags, (shop.orders, ORDERS))

    orders = read_topic(spark, shop.app, shop.orders.name, flags=flags)
    assert orders.schema["value"].dataType.simpleString() == (
        "struct<id:bigint,who:string,at:bigint,tags:array<string>,note:string>"
    )
    rows = orders.orderBy("value.id").collect()
    assert [(row.key, row.value.id, row.value.note) for row in rows] == [(o.who, o.id, "none") for o in ORDERS]
    assert rows[3].event_time.timestamp() * 1000 == ORDERS[3].at
    assert rows[0].run is None  # no service of the app has sent it

    receipts = read_topic(spark, shop.app, shop.receipts.name, flags=flags).collect()
    assert sorted((row.value.order, row.value.total) for row in receipts) == [(o.id, o.id * 1.5) for o in ORDERS]
    assert {(row.sender_app, row.run, row.epoch) for row in receipts} == {(shop.id, "1", 0)}
    assert {row.sender.split(".")[0] for row in receipts} == {"till"}

    streamed = collected(stream_topic(spark, shop.app, shop.receipts.name, flags=flags), tmp_path / "checkpoint")
    assert sorted(row.value.order for row in streamed) == [order.id for order in ORDERS]


def test_a_stream_resumes_at_its_position(spark: SparkSession, flags: dict[str, Any], tmp_path: Path) -> None:
    shop = Shop()
    ran(shop.app, flags, (shop.orders, ORDERS[:20]))
    place = tmp_path / "checkpoint"
    frame = stream_topic(spark, shop.app, shop.orders.name, flags=flags).select("value.id")
    assert sorted(row.id for row in collected(frame, place)) == list(range(20))

    ran(shop.app, flags, (shop.orders, ORDERS[20:]))
    assert sorted(row.id for row in collected(frame, place)) == list(range(20, 50))


def test_bad_records_fail_the_query_or_are_dropped_or_kept(spark: SparkSession, tmp_path: Path) -> None:
    shop = Shop()
    flags = {"data": tmp_path}
    good = [b'{"id":1,"who":"a","at":5}', b'{"id":2,"who":"b","at":6,"note":"x","more":1}']
    bad = [b"nonsense", b'{"id":"three","who":"c","at":7}', b'{"id":4,"at":8}', b"\xff\xfe", b"17", b"[]"]
    ran(shop.app, flags, (shop.raw, [*good, *bad]))
    typed = App(shop.id)
    typed.topic(shop.raw.name, value_type=Order, time=EventTime("at"))

    with pytest.raises(Exception, match="bad='drop'"):
        read_topic(spark, typed, shop.raw.name, flags=flags).collect()
    dropped = read_topic(spark, typed, shop.raw.name, flags=flags, bad="drop").orderBy("value.id").collect()
    assert [(row.value.id, row.value.note, row.value.tags) for row in dropped] == [(1, "none", []), (2, "x", [])]
    kept = read_topic(spark, typed, shop.raw.name, flags=flags, bad="keep").where("error is not null").collect()
    assert {bytes(row.raw) for row in kept} == set(bad)
    assert {row.error for row in kept} == {"it is not JSON of the declared type", "the field who is missing"}
    assert {row.value for row in kept} == {None}


def test_the_time_may_be_a_function_of_the_value(spark: SparkSession, tmp_path: Path) -> None:
    shop = Shop(time=EventTime(_noon))
    ran(shop.app, {"data": tmp_path}, (shop.orders, ORDERS[:1]))

    (row,) = read_topic(spark, shop.app, shop.orders.name, flags={"data": tmp_path}).collect()

    assert row.event_time.timestamp() * 1000 == ORDERS[0].at + 43_200_000


@pytest.mark.parametrize("of", ["at", lambda order: order.at], ids=["a field", "a function"])
def test_tombstones_have_the_value_null_and_the_time_of_their_record(
    spark: SparkSession, tmp_path: Path, of: str | Callable[[Any], Any]
) -> None:
    app = App(f"crm{uuid.uuid4().hex[:8]}", partitions=2)
    orders = app.topic(f"{app.id}-orders", value_type=Order, key="who")
    latest = app.topic(f"{app.id}-latest", value_type=Order, key="who", compact=True, time=EventTime(of))

    @app.process(orders, to=latest)
    def follow(ctx: Context, order: Order) -> None:
        if order.note == "done":
            ctx.delete(order.who, timestamp=order.at + 5)
        else:
            ctx.emit(order)

    at = 1_700_000_000_000
    ran(app, {"data": tmp_path}, (orders, [Order(1, "ann", at), Order(1, "ann", at + 1000, note="done")]))

    found, gone = read_topic(spark, app, latest.name, flags={"data": tmp_path}).orderBy("offset").collect()

    assert (found.key, found.value.id, found.event_time.timestamp() * 1000) == ("ann", 1, at)
    assert (gone.key, gone.value, gone.event_time.timestamp() * 1000) == ("ann", None, at + 1005)


def _noon(order: Order) -> int:
    return order.at + 43_200_000


def test_types_that_spark_cannot_express_are_refused_with_a_clear_error(spark: SparkSession, tmp_path: Path) -> None:
    shop = Shop(watermark=Punctuated(mark=lambda _value, at: at))
    ran(shop.app, {"data": tmp_path})

    with pytest.raises(EventTypeError, match="which Spark does not support: give a delay"):
        stream_topic(spark, shop.app, shop.orders.name, flags={"data": tmp_path})
    with pytest.raises(UnknownNameError, match="there is no topic 'oders' here"):
        read_topic(spark, shop.app, "oders")


async def emptied(directory: Path, topic: str) -> None:
    log = EmbeddedLog(directory)
    await log.start()
    await log.delete([topic])
    await log.create([TopicSpec(name=topic, partitions=2)])
    await log.stop()


def test_a_recreated_topic_stops_the_stream(spark: SparkSession, tmp_path: Path) -> None:
    shop = Shop()
    flags = {"data": tmp_path / "data"}
    ran(shop.app, flags, (shop.orders, ORDERS[:5]))
    frame = stream_topic(spark, shop.app, shop.orders.name, flags=flags).select("value.id")
    collected(frame, tmp_path / "checkpoint")
    asyncio.run(emptied(tmp_path / "data" / shop.id, shop.orders.name))

    with pytest.raises(Exception, match="was emptied and recreated"):
        collected(frame, tmp_path / "checkpoint")
