"""Raw records of a log, with the same columns for both logs: key, value, topic, partition, offset, timestamp,
headers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tidegate.interop import addresses_of, data_directory, on_kafka
from tidegate.settings import Settings
from tidegate_spark.reading.embedded_log import EmbeddedLogSource
from tidegate_spark.reading.kafka_options import connection_options

__all__ = ("read_raw", "stream_raw")


def read_raw(spark: SparkSession, app: str, settings: Settings, topic: str, options: Mapping[str, Any]) -> DataFrame:
    """All committed records of a topic."""
    reader = spark.read
    form, base = _source(spark, app, settings, topic)
    return reader.format(form).options(**{**base, **options}).load()


def stream_raw(spark: SparkSession, app: str, settings: Settings, topic: str, options: Mapping[str, Any]) -> DataFrame:
    """The committed records as a stream, by default from the first record on."""
    form, base = _source(spark, app, settings, topic)
    start = {"startingOffsets": "earliest"}
    return spark.readStream.format(form).options(**{**start, **base, **options}).load()


def _source(spark: SparkSession, app: str, settings: Settings, topic: str) -> tuple[str, Mapping[str, str]]:
    if on_kafka(settings):
        return "kafka", {
            "kafka.bootstrap.servers": ",".join(addresses_of(settings.broker)),
            "kafka.isolation.level": "read_committed",
            "subscribe": topic,
            "includeHeaders": "true",
            "failOnDataLoss": "true",
            **connection_options(settings),
        }
    spark.dataSource.register(EmbeddedLogSource)
    directory = Path(data_directory(app, settings)).absolute()
    return EmbeddedLogSource.name(), {"path": str(directory), "topic": topic}
