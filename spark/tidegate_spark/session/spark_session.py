"""A Spark session that can read an app's log: with Java, jars, and this process's Python."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidegate.jvm.java import find_java
from tidegate_spark.errors import MissingJarsError, MissingSparkError
from tidegate_spark.session.jars import CONNECTOR, needed_jars
from tidegate_spark.session.java_home import java_home_for
from tidegate_spark.session.table_formats import Format, format_settings, formats_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ("DEFAULTS", "check_installed", "has_class", "open_session", "session")

DEFAULTS: Final = {
    "spark.sql.session.timeZone": "UTC",  # partition dates and timestamps must not depend on the machine
    "spark.sql.shuffle.partitions": "4",  # the default of 200 is for clusters: each costs a task and a file per batch
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # the common format, instead of Impala's legacy one
    "spark.ui.showConsoleProgress": "false",
}
"""The defaults of a session; `options` and spark-submit override them."""


def open_session(
    name: str = "tidegate",
    *,
    master: str | None = None,
    kafka: bool = False,
    formats: Iterable[str] = (),
    jars: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
) -> SparkSession:
    """The session of this process, created if there is none yet.

    kafka, formats: add the jars for Kafka topics, and for tables in `delta`, unless `jars` is given. Under spark-submit
    its master and jars apply. If Java, PySpark or a jar is missing, the error says so in one line."""
    check_installed()
    os.environ["JAVA_HOME"] = str(java_home_for(find_java("Spark")))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if _is_local(master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    import pyspark
    from pyspark.sql import SparkSession

    wanted = formats_of(formats)
    made = SparkSession.getActiveSession()
    if made is None:
        builder = SparkSession.builder.appName(name)
        given = _given()
        ours = {**_machine(), **DEFAULTS, **format_settings(wanted)}
        kept = {key: value for key, value in ours.items() if key not in given}
        for key, value in {**kept, **(options or {})}.items():
            builder = builder.config(key, value)
        if not _submitted():
            builder = builder.master(master or "local[*]")
            found = jars or needed_jars(pyspark.__version__, kafka=kafka, formats=wanted)
            builder = builder.config("spark.jars", ",".join(found)) if found else builder
        made = builder.getOrCreate()
    _check_jars(made, kafka, wanted)
    return made


def _check_jars(spark: SparkSession, kafka: bool, formats: Iterable[Format]) -> None:
    """The jars of an existing session, and those of `jars`, are not known to be complete."""
    if kafka and not has_class(spark, CONNECTOR):
        raise MissingJarsError("topics on Kafka")
    for made in formats:
        if not has_class(spark, made.extension):
            raise MissingJarsError(f"{made.name} tables")


def has_class(spark: SparkSession, name: str) -> bool:
    from py4j.protocol import Py4JJavaError

    java: Any = spark.sparkContext._jvm  # noqa: SLF001  Spark has no other way to its class loader
    try:
        java.org.apache.spark.util.Utils.classForName(name, False, False)
    except Py4JJavaError:
        return False
    return True


@contextmanager
def session(name: str, **options: Any) -> Iterator[SparkSession]:
    """A session as a context manager: one that was created here is stopped at the end."""
    check_installed()
    from pyspark.sql import SparkSession

    known = SparkSession.getActiveSession()
    spark = open_session(name, **options)
    try:
        yield spark
    finally:
        if known is None:
            spark.stop()


def check_installed() -> None:
    for needed in ("pyspark", "pandas", "pyarrow"):
        if importlib.util.find_spec(needed) is None:
            raise MissingSparkError(needed)


def _is_local(master: str | None) -> bool:
    return not _submitted() and (master or "local").startswith("local")


def _submitted() -> bool:
    """Whether spark-submit has started this process; the session's master is then already set."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _given() -> set[str]:
    """The settings given to spark-submit, which the builder's settings would override."""
    if not _submitted():
        return set()
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()  # noqa: SLF001  otherwise the configuration has no JVM
    return {key for key, _ in SparkConf().getAll()}


def _machine() -> dict[str, str]:
    """The options of a JVM that is started here: they suppress the warnings of its start."""
    configuration = Path(__file__).with_name("log4j2.properties")
    options = f"-Dlog4j2.configurationFile=file:{configuration}"
    return {} if _submitted() else {"spark.driver.extraJavaOptions": options}
