"""Tidegate on Spark: an app's topics, its state and its savepoints as DataFrames, and jobs over them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.lazy import loader

if TYPE_CHECKING:
    from tidegate_spark.bootstrap import write_savepoint
    from tidegate_spark.jobs.contract import Job, Table, ToTopic, job, source
    from tidegate_spark.jobs.runner import run_job
    from tidegate_spark.reading.changelogs import read_changelog, stream_changelog
    from tidegate_spark.reading.savepoints import read_state
    from tidegate_spark.reading.tables import read_table
    from tidegate_spark.reading.topics import read_topic, stream_topic
    from tidegate_spark.session.spark_session import open_session
    from tidegate_spark.sql import register_views

# Where each public name lives, loaded when first used: importing PySpark takes most of a second.
_HOMES = {
    "tidegate_spark.bootstrap": ("write_savepoint",),
    "tidegate_spark.reading.changelogs": ("read_changelog", "stream_changelog"),
    "tidegate_spark.jobs.contract": ("Job", "Table", "ToTopic", "job", "source"),
    "tidegate_spark.jobs.runner": ("run_job",),
    "tidegate_spark.reading.savepoints": ("read_state",),
    "tidegate_spark.session.spark_session": ("open_session",),
    "tidegate_spark.sql": ("register_views",),
    "tidegate_spark.reading.tables": ("read_table",),
    "tidegate_spark.reading.topics": ("read_topic", "stream_topic"),
}

__all__ = (
    "Job",
    "Table",
    "ToTopic",
    "job",
    "open_session",
    "read_changelog",
    "read_state",
    "read_table",
    "read_topic",
    "register_views",
    "run_job",
    "source",
    "stream_changelog",
    "stream_topic",
    "write_savepoint",
)


__getattr__ = loader(globals(), _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)
