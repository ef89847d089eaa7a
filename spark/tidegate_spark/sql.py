"""SQL over an app: its topics, its tables, and the state in a savepoint as views."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as t

from tidegate.errors import UsageError
from tidegate.interop import open_uri
from tidegate_spark.errors import NoTableError
from tidegate_spark.jobs.contract import FunctionJob, Job, Source, Table, ToTopic
from tidegate_spark.jobs.paths import TableLocations
from tidegate_spark.reading.savepoints import read_state
from tidegate_spark.reading.tables import load_table, table_names
from tidegate_spark.reading.topics import read_topic

if TYPE_CHECKING:
    from tidegate import App

T = TypeVar("T")

__all__ = ("explained", "flat", "register_views", "sql_job", "view_name")


def register_views(
    spark: SparkSession,
    app: App,
    *,
    savepoint: str | None = None,
    flags: Mapping[str, Any] | None = None,
    only: str | None = None,
) -> dict[str, str]:
    """Create temporary views; returns a description of each. only: a query; views that it does not mention are left
    out.

    Views have the names of topics and tables, with _ for characters that SQL does not allow; NAME_table if a topic has
    the table's name; SERVICE_STATE for a state."""
    made: dict[str, str] = {}

    def register(name: str, what: str, frame: Callable[[], DataFrame]) -> None:
        if only is None or _mentions(only, name):
            try:
                frame().createOrReplaceTempView(name)
            except NoTableError:
                return  # nothing was written to the table yet, so its columns are unknown
        made[name] = what

    for topic in app.define().topics:
        register(
            view_name(topic.name),
            f"topic {topic.name}",
            partial(_topic, spark, app, topic.name, flags),
        )
    places = TableLocations.of(app, flags)
    for table in table_names(spark, places):
        name = f"{table}_table" if table in made else table
        register(name, f"table {table}", partial(load_table, spark, places, table))
    for service, state in _states(savepoint):
        register(
            view_name(f"{service}_{state}"),
            f"state {state} of {service}",
            partial(read_state, spark, str(savepoint), service, state),
        )
    return made


def _topic(spark: SparkSession, app: App, name: str, flags: Mapping[str, Any] | None) -> DataFrame:
    return flat(read_topic(spark, app, name, bad="drop", flags=flags))


def _states(savepoint: str | None) -> list[tuple[str, str]]:
    if savepoint is None:
        return []
    schemas = open_uri(savepoint).manifest.schemas
    return [
        (service, state)
        for service, states in schemas.items()
        for state, schema in states.items()
        if schema.get("kind") != "operator"
    ]


def view_name(name: str) -> str:
    return re.sub(r"\W", "_", name)


def _mentions(query: str, name: str) -> bool:
    return re.search(rf"\b{re.escape(name)}\b", query, re.IGNORECASE) is not None


def flat(frame: DataFrame) -> DataFrame:
    """The fields of the value beside the record's other columns; on a name clash, the record's column gets a _."""
    kind = frame.schema["value"].dataType
    if not isinstance(kind, t.StructType):
        return frame
    fields: list[Column] = [F.col("value")[name].alias(name) for name in kind.names]
    others = [name for name in frame.columns if name != "value"]
    rest = [F.col(name).alias(f"_{name}" if name in kind.names else name) for name in others]
    return frame.select(*fields, *rest)


def explained(call: Callable[[], T]) -> T:
    """Translates Spark's errors about an invalid query, without their Java stack."""
    try:
        return call()
    except (AnalysisException, ParseException) as error:
        text = str(error).partition("\n\nJVM stacktrace")[0].partition(";\n")[0].strip()
        raise UsageError(text) from error


# ---------------------------------------------------------------------------------------------------------- continuous


def sql_job(
    spark: SparkSession,
    app: App,
    query: str,
    to: str,
    *,
    name: str = "",
    key: tuple[str, ...] = (),
    date: str | None = None,
    flags: Mapping[str, Any] | None = None,
) -> Job:
    """A job that runs a query continuously over the topics. to: one of the app's topics, or the name of a table.

    Without a key, windows are written when the watermark passes their end; with a key, at each update."""
    declared = app.topics
    used = [topic for topic in declared.values() if _mentions(query, view_name(topic.name))]
    if not used:
        known = ", ".join(view_name(topic) for topic in declared)
        raise UsageError(f"a continuous query must read a topic. Topics: {known or 'none'}")
    if to in declared:
        output: Table | ToTopic = ToTopic(declared[to], key=key[0] if key else None)
    else:
        output = Table(to, key=key, date=date)

    def run(*frames: DataFrame) -> DataFrame:
        register_views(spark, app, flags=flags, only=query)  # the current contents of tables
        for topic, frame in zip(used, frames, strict=True):
            flat(frame).createOrReplaceTempView(view_name(topic.name))
        return spark.sql(query)

    run.__doc__ = query
    return FunctionJob(run, name or f"sql_{view_name(to).lower()}", [Source(topic) for topic in used], output)
