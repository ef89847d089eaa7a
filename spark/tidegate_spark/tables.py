"""The tables that jobs write, as DataFrames."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tidegate_spark.errors import NoTableError
from tidegate_spark.jobs.committing import DATE
from tidegate_spark.jobs.files import Files
from tidegate_spark.jobs.places import Places

if TYPE_CHECKING:
    from tidegate import App

__all__ = ("load_table", "read_table", "table_names")


def read_table(
    spark: SparkSession, app: App, name: str, *, format: str = "parquet", flags: Mapping[str, Any] | None = None
) -> DataFrame:
    """A table by its name. Rows that are older than one of its columns have null there."""
    return load_table(spark, Places.of(app, flags), name, format)


def load_table(spark: SparkSession, places: Places, name: str, format: str = "parquet") -> DataFrame:
    path = places.table(name)
    if format != "parquet":
        return spark.read.format(format).load(path)
    if not Files(spark, places.root).exists(path):
        raise NoTableError(name, places.root)
    try:
        frame = spark.read.option("mergeSchema", "true").parquet(path)
    except AnalysisException as error:
        if "UNABLE_TO_INFER_SCHEMA" in str(error):
            raise NoTableError(name, places.root) from error
        raise
    return frame.withColumn(DATE, F.col(DATE).cast("date")) if DATE in frame.columns else frame


def table_names(spark: SparkSession, places: Places) -> list[str]:
    return [name for name in Files(spark, places.root).names(places.root) if not name.startswith(("_", "."))]
