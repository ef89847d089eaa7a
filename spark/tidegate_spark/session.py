"""A Spark session that can read an app's log: Java, jars, and the Python that this process runs on."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidegate.jvm.java import find_java
from tidegate_spark.errors import MissingSparkError
from tidegate_spark.jars import connector_jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ("DEFAULTS", "check_installed", "open_session", "session")

DEFAULTS: Final = {
    "spark.sql.session.timeZone": "UTC",  # dates of partitions and times in tables do not depend on the machine
    "spark.sql.shuffle.partitions": "4",  # 200 is for clusters: each costs a task and a file of state per batch
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # as others write times, instead of Impala's old way
    "spark.ui.showConsoleProgress": "false",
}
"""What a session has unless it is told otherwise. Everything can be overridden by `options` and spark-submit."""


def open_session(
    name: str = "tidegate",
    *,
    master: str | None = None,
    kafka: bool = False,
    jars: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
) -> SparkSession:
    """The session of this process, made if there is none yet.

    kafka: with the jars that Kafka's topics need, unless `jars` names some. Under spark-submit the master and the jars
    that it was given hold. A missing Java or PySpark is one clear line."""
    check_installed()
    java = find_java("Spark")
    os.environ.setdefault("JAVA_HOME", str(java.resolve().parent.parent))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if _is_local(master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    import pyspark
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    if kafka and not jars and not _submitted_with_jars():
        jars = connector_jars(pyspark.__version__)
    builder = SparkSession.builder.appName(name)
    for key, value in {**_machine(), **DEFAULTS, **(options or {})}.items():
        builder = builder.config(key, value)
    if master is not None or not _submitted():
        builder = builder.master(master or "local[*]")
    if jars:
        builder = builder.config("spark.jars", ",".join(jars))
    return builder.getOrCreate()


@contextmanager
def session(name: str, **options: Any) -> Iterator[SparkSession]:
    """The same for a while: one that was made here is stopped in the end."""
    check_installed()
    from pyspark.sql import SparkSession

    known = SparkSession.getActiveSession()
    spark = known or open_session(name, **options)
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
    """Whether spark-submit has started this process: then the session's master is known already."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _submitted_with_jars() -> bool:
    return _submitted() and "SPARK_SUBMIT_JARS" in os.environ


def _machine() -> dict[str, str]:
    """Of the Java that is started here. Its log: warnings of its own start are of no use to anybody. Its stacks: Spark
    formats the code that it generates by regular expressions which go deep, too deep for the usual 1 MB at times."""
    configuration = Path(__file__).with_name("log4j2.properties")
    options = f"-Dlog4j2.configurationFile=file:{configuration} -Xss4m"
    return {} if _submitted() else {"spark.driver.extraJavaOptions": options}
