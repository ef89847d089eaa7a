"""Sources of jars: Maven, else the Ivy of PySpark, else an error that says what to install."""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tidegate.jvm.errors import JarsError
from tidegate.jvm.jar_download import Coordinates, Ivy, Maven, choose_source

JARS = [Coordinates("org.example", "one", "1.0"), Coordinates("org.example", "two&more", "2.0")]


@pytest.fixture(autouse=True)
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setitem(sys.modules, "pyspark", None)


def install(program: Path, text: str) -> None:
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)


def install_pyspark(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jars = directory / "pyspark" / "jars"
    jars.mkdir(parents=True)
    (directory / "pyspark" / "__init__.py").touch()
    (jars / "ivy-2.5.3.jar").touch()
    monkeypatch.delitem(sys.modules, "pyspark")
    monkeypatch.syspath_prepend(str(directory))


def test_maven_is_used_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_pyspark(tmp_path / "packages", monkeypatch)
    install(tmp_path / "bin" / "mvn", "exit 0")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))

    assert isinstance(choose_source("1"), Maven)


def test_ivy_of_pyspark_serves_where_maven_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_pyspark(tmp_path / "packages", monkeypatch)

    assert isinstance(choose_source("1"), Ivy)


def test_without_pyspark_and_maven_the_error_names_what_to_install() -> None:
    with pytest.raises(JarsError, match="pip install pyspark") as raised:
        choose_source("Kafka 4.3.1")

    assert "the jars of Kafka 4.3.1 cannot be downloaded" in str(raised.value)
    assert "Install Maven" in str(raised.value)


def test_mavens_message_is_in_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "home" / "bin" / "java", "echo 'openjdk version \"17\"' >&2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    install(tmp_path / "bin" / "mvn", "echo '[ERROR] no route to the repository'; exit 7")

    with pytest.raises(JarsError, match="no route to the repository") as raised:
        Maven(tmp_path / "bin" / "mvn", "4.3.1").fetch(JARS, tmp_path / "work")

    assert "Maven failed with exit code 7" in str(raised.value)


def test_a_mirror_is_named_to_ivy_by_the_variable_that_spark_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "home" / "bin" / "java", "echo 'openjdk version \"17\"' >&2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DEFAULT_ARTIFACT_REPOSITORY", "file:///mirror?a&b")

    Ivy(tmp_path / "ivy.jar", "4.3.1").fetch(JARS, tmp_path / "work")

    settings = ElementTree.parse(tmp_path / "work" / "settings.xml")
    wanted = ElementTree.parse(tmp_path / "work" / "ivy.xml")
    assert [each.get("root") for each in settings.iter("ibiblio")] == ["file:///mirror?a&b"]
    assert [each.get("name") for each in wanted.iter("dependency")] == ["one", "two&more"]
