"""An app whose tables are Delta's: sales as they came, and each once."""

from __future__ import annotations

from pyspark.sql import DataFrame

from tests.spark.shop import Sale
from tidegate import App, EventTime
from tidegate_spark import Table, job, source

__all__ = ("app", "collect", "count", "distinct", "sales")

app = App("lake", partitions=2, time=EventTime("at"))
sales = app.topic("sales", value_type=Sale, key="what")


@job(inputs=sales, outputs=Table("sales", format="delta"))
def collect(rows: DataFrame) -> DataFrame:
    return rows.select("value.*", "event_time", "partition", "offset")


@job(inputs=source(sales, watermark=None), outputs=Table("distinct_sales", date=None, format="delta"))
def distinct(rows: DataFrame) -> DataFrame:
    """With state: what was sent before is left out."""
    return rows.select("value.id", "value.what").dropDuplicates(["id"])


@job(inputs=Table("sales", format="delta"), outputs=Table("counts", date=None, format="delta"))
def count(rows: DataFrame) -> DataFrame:
    return rows.groupBy("what").count()
