"""One Spark session for all tests here: starting one takes most of their time."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tidegate_spark import open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


JAVA = (
    "-XX:TieredStopAtLevel=1",
    "-XX:ReservedCodeCacheSize=240m",
    "-XX:+UseSerialGC",
    "-Dspark.ui.enabled=false",
)
"""For lives of a minute on two cores: half of a driver's work would be compiling code that is then hardly run. Measured
over a session's first two jobs: 16 seconds of CPU instead of 32. With one compiler the JVM reserves only 48 MB for
compiled code, which a session that runs all tests fills: then the driver dies."""


@pytest.fixture(scope="session", autouse=True)
def quick_starts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """For the session here and for all drivers that tests start, spark-submit's too: they inherit the environment."""
    with pytest.MonkeyPatch.context() as patch:
        given = os.environ.get("SPARK_SUBMIT_OPTS", "")
        patch.setenv("SPARK_SUBMIT_OPTS", " ".join((*JAVA, given)).strip())
        if "SPARK_HOME" not in os.environ:
            patch.setenv("SPARK_HOME", str(_without_archive(tmp_path_factory.mktemp("spark"))))
        yield


def _without_archive(home: Path) -> Path:
    """The installed Spark, but for the archive of PySpark's sources. Each Python process that Spark starts would
    compile what it needs of them, which is installed and compiled already: 0.95 seconds of CPU instead of 0.36."""
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    for each in Path(spec.origin).parent.iterdir():
        if each.name != "python":
            (home / each.name).symlink_to(each)
    return home


@pytest.fixture(scope="session")
def spark(quick_starts: None) -> Iterator[SparkSession]:
    options = {
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        "spark.driver.memory": "1g",
    }
    session = open_session("tests", master="local[2]", kafka=True, options=options)
    yield session
    session.stop()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A JVM that starts on a busy machine takes its time."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(600))
