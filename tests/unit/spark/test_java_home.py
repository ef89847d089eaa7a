"""The JAVA_HOME of a Spark session: a whole JDK's own, or one whose `java` leaves out a module that is missing."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tidegate_spark.session.java_home import java_home_for

WHOLE = 'JAVA_VERSION="21.0.8"\nMODULES="java.base jdk.incubator.vector jdk.unsupported"\n'
SMALL = 'JAVA_VERSION="21.0.8"\nMODULES="java.base jdk.unsupported"\n'


def make_java(home: Path, release: str | None) -> Path:
    """A `java` that prints its arguments, one on each line."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    java.chmod(0o755)
    if release is not None:
        (home / "release").write_text(release)
    return java


@pytest.mark.parametrize("release", [WHOLE, 'JAVA_VERSION="17"\n', None])
def test_a_runtime_that_has_the_module_or_lists_none_is_used_as_it_is(tmp_path: Path, release: str | None) -> None:
    java = make_java(tmp_path / "jdk", release)

    assert java_home_for(java, tmp_path / "cache") == tmp_path / "jdk"
    assert not (tmp_path / "cache").exists()


def test_one_without_it_is_started_without_it_and_with_all_else(tmp_path: Path) -> None:
    java = make_java(tmp_path / "small jdk's", SMALL)
    home = java_home_for(java, tmp_path / "cache")
    arguments = ["-cp", "a b:*", "--add-modules=jdk.incubator.vector", "-Dx=$HOME", "", "Main"]

    done = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)

    assert home.is_relative_to(tmp_path / "cache")
    assert done.stdout.splitlines() == ["-cp", "a b:*", "-Dx=$HOME", "", "Main"]
    assert java_home_for(java, tmp_path / "cache") == home, "the second time it is there"
    assert java_home_for(home / "bin" / "java", tmp_path / "cache") == home, "and it is found again by JAVA_HOME"
    assert [path.name for path in (home / "bin").iterdir()] == ["java"]
