"""The jobs. `collect` and `windows` follow the topics; `people` looks at the tables that `collect` has written."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from examples.tinder_match.app import likes, matches
from examples.tinder_match.events import MONTH
from tidegate_spark import Table, job, source

__all__ = ("collect", "people", "windows")

PATIENCE = "60 days"
"""How late a match may be. Spark's watermark follows the fastest partition, and event time runs fast in this example: a
worker that is away for ten seconds is five days late. A minute has one small row of state, so patience costs little."""


@job(inputs=[likes, matches], outputs=[Table("likes"), Table("matches")])
def collect(likes: DataFrame, matches: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Every like and every match, as they came."""
    rows = ("value.*", "event_time", "timestamp", "partition", "offset", "run", "epoch")
    return likes.select(*rows), matches.select(*rows)


@job(
    inputs=source(matches, watermark=PATIENCE),
    outputs=[
        Table("matches_per_minute", key="minute", date="minute"),
        Table("matches_per_hour", key="hour", date="hour"),
    ],
)
def windows(matches: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Matches per minute and hour of event time."""
    return _counted(matches, "minute"), _counted(matches, "hour")


def _counted(matches: DataFrame, unit: str) -> DataFrame:
    counted = matches.groupBy(F.window("event_time", f"1 {unit}")).agg(F.count("*").alias("matches"))
    return counted.select(F.col("window.start").alias(unit), "matches")


@job(
    inputs=[Table("likes"), Table("matches")],
    outputs=[Table("like_to_match", date="matched_at"), Table("people", date=None), Table("days", date=None)],
)
def people(likes: DataFrame, matches: DataFrame) -> dict[str, DataFrame]:
    """How long likes waited for their answer, who is successful, and what each day was like."""
    waited = like_to_match(likes, matches)
    return {"like_to_match": waited, "people": conversion(likes, matches), "days": days(likes, matches, waited)}


def like_to_match(likes: DataFrame, matches: DataFrame) -> DataFrame:
    """From the first like of the one who liked first, within a month of the match, to the match. It is negative where
    that like was given later than its answer, and arrived earlier."""
    given = likes.select("liker", "liked", F.col("at").alias("liked_ms"))
    answered = (matches["first"] == given["liker"]) & (matches["second"] == given["liked"])
    in_time = given["liked_ms"].between(matches["at"] - MONTH, matches["at"] + MONTH)
    joined = matches.join(given, answered & in_time)
    first = joined.groupBy("pair", "first", "second", "at").agg(F.min("liked_ms").alias("liked_ms"))
    return first.select(
        "pair",
        "first",
        "second",
        F.timestamp_millis("liked_ms").alias("liked_at"),
        F.timestamp_millis("at").alias("matched_at"),
        (F.col("at") - F.col("liked_ms")).alias("waited_ms"),
    )


def conversion(likes: DataFrame, matches: DataFrame) -> DataFrame:
    """Per person: how many others they liked, and how many of those it became a match with."""
    liked = likes.select(F.col("liker").alias("person"), F.col("liked").alias("other")).distinct()
    sides = (("first", "second"), ("second", "first"))
    ends = [matches.select(F.col(one).alias("person"), F.col(two).alias("other")) for one, two in sides]
    matched = ends[0].union(ends[1]).withColumn("matched", F.lit(1))
    joined = liked.join(matched, ["person", "other"], "left")
    counted = joined.groupBy("person").agg(
        F.count("*").alias("liked"), F.coalesce(F.sum("matched"), F.lit(0)).alias("matches")
    )
    return counted.withColumn("conversion", F.col("matches") / F.col("liked"))


def days(likes: DataFrame, matches: DataFrame, waited: DataFrame) -> DataFrame:
    """The day report."""
    given = likes.groupBy("date").agg(F.count("*").alias("likes"), F.count_distinct("liker").alias("people"))
    found = matches.groupBy("date").agg(F.count("*").alias("matches"))
    waits = waited.groupBy(F.to_date("matched_at").alias("date")).agg(
        F.percentile("waited_ms", 0.5).cast("long").alias("median_wait_ms")
    )
    joined = given.join(found, "date", "full").join(waits, "date", "full")
    return joined.na.fill(0, ["likes", "people", "matches"]).withColumnRenamed("date", "day")
