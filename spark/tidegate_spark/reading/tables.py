"""The tables of jobs as DataFrames."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tidegate_spark.errors import MissingJarsError, NoTableError
from tidegate_spark.jobs.files import Files, joined
from tidegate_spark.jobs.ownership import DATE
from tidegate_spark.jobs.paths import TableLocations
from tidegate_spark.session.spark_session import has_class
from tidegate_spark.session.table_formats import FORMATS, PARQUET

if TYPE_CHECKING:
    from tidegate import App

__all__ = ("load_table", "read_table", "table_names")


def read_table(spark: SparkSession, app: App, name: str, *, flags: Mapping[str, Any] | None = None) -> DataFrame:
    """A table by its name, in any format. Rows that were written before a column was added have null there."""
    return load_table(spark, TableLocations.of(app, flags), name)


def load_table(spark: SparkSession, places: TableLocations, name: str) -> DataFrame:
    path = places.table(name)
    files = Files(spark, places.root)
    if not files.exists(path):
        raise NoTableError(name, places.root)
    kind = _format(files, path)
    if kind == PARQUET:
        return _parquet(spark, places, name)
    if not has_class(spark, FORMATS[kind].extension):
        raise MissingJarsError(f"{kind} tables such as {path}")
    return spark.read.format(kind).load(path)


def _format(files: Files, path: str) -> str:
    return next((made.name for made in FORMATS.values() if files.exists(joined(path, made.hint))), PARQUET)


def _parquet(spark: SparkSession, places: TableLocations, name: str) -> DataFrame:
    try:
        frame = spark.read.option("mergeSchema", "true").parquet(places.table(name))
    except AnalysisException as error:
        if "UNABLE_TO_INFER_SCHEMA" in str(error):
            raise NoTableError(name, places.root) from error
        raise
    return frame.withColumn(DATE, F.col(DATE).cast("date")) if DATE in frame.columns else frame


def table_names(spark: SparkSession, places: TableLocations) -> list[str]:
    return [name for name in Files(spark, places.root).names(places.root) if not name.startswith(("_", "."))]
