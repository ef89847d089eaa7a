"""An app that sells things, and jobs over its sales."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow.dataset as ds

from tidegate import App, Context, EventTime
from tidegate_spark import Table, ToTopic, job, source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ("Sale", "Shop", "Total", "by_pyarrow", "sales")

DAY = 86_400_000


class Sale(msgspec.Struct):
    id: int
    what: str
    at: int


class Total(msgspec.Struct):
    what: str
    count: int


class Shop:
    def __init__(self, sale: Any = Sale, id: str = "") -> None:
        self.id = id or f"s{uuid.uuid4().hex[:8]}"
        self.app = App(self.id, partitions=2, time=EventTime("at"))
        self.sales = self.app.topic(f"{self.id}-sales", value_type=sale, key="what")
        self.totals = self.app.topic(f"{self.id}-totals", value_type=Total, key="what", time=EventTime())
        self.raw = self.app.topic(f"{self.id}-raw", value_type=bytes, time=EventTime())

        @self.app.process(self.totals)
        async def seen(ctx: Context, total: Total) -> None: ...

        @job(inputs=self.sales, outputs=Table("sales"))
        def collect(sales: DataFrame) -> DataFrame:
            """Every sale."""
            return sales.select("value.*", "event_time", "partition", "offset")

        @job(inputs=source(self.sales, watermark=None), outputs=Table("counts", key="what", date=None))
        def counts(sales: DataFrame) -> DataFrame:
            return sales.groupBy("value.what").count()

        @job(inputs=Table("counts", key="what"), outputs=ToTopic(self.totals, key="what", id=("what", "count")))
        def publish(counts: DataFrame) -> DataFrame:
            return counts.select("what", "count")

        self.collect, self.counts, self.publish = collect, counts, publish


def sales(*ids: int) -> list[Sale]:
    return [Sale(id=n, what=f"w{n % 3}", at=1_700_000_000_000 + n * DAY // 4) for n in ids]


def by_pyarrow(flags: dict[str, Any], shop: Shop, table: str) -> list[dict[str, Any]]:
    """As a reader sees it who knows nothing of Spark."""
    found: list[dict[str, Any]] = (
        ds.dataset(Path(flags["data"]) / shop.id / "tables" / table, partitioning="hive").to_table().to_pylist()
    )
    return found
