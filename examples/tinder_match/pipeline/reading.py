"""Reading the app from Spark, as one does in a notebook: topics, state, changes, tables, SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from examples.tinder_match.app import app
from tidegate_spark import read_changelog, read_table, read_topic, register_views

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ("longest", "newest", "popular", "talkative")


def newest(spark: SparkSession, flags: dict[str, Any]) -> DataFrame:
    """The last matches: the value is typed, and each record says when it happened and who sent it."""
    matches = read_topic(spark, app, "matches", flags=flags)
    return matches.select("value.first", "value.second", "event_time", "run", "epoch").orderBy("event_time").limit(10)


def popular(spark: SparkSession, flags: dict[str, Any]) -> DataFrame:
    """What the actors know now, from the changelog: a row for each entry of each person's map."""
    inboxes = read_changelog(spark, app, "inbox", "matches", flags=flags)
    return inboxes.groupBy("key").count().orderBy("count", ascending=False)


def longest(spark: SparkSession, flags: dict[str, Any]) -> DataFrame:
    """A table that a job has written."""
    waits = read_table(spark, app, "like_to_match", flags=flags)
    return waits.orderBy("waited_ms", ascending=False).limit(10)


def talkative(spark: SparkSession, flags: dict[str, Any]) -> DataFrame:
    """The same in SQL."""
    register_views(spark, app, flags=flags)
    return spark.sql("select liker, count(*) as likes from likes group by liker order by likes desc limit 10")
