"""Pinned jars: verification by checksum, cache, download."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tidegate.jvm.errors import DamagedJarsError
from tidegate.jvm.file_lock import locked
from tidegate.jvm.jar_download import Coordinates, Source, choose_source
from tidegate.jvm.paths import cache_directory

__all__ = ("Jar", "JarSet", "damaged_jars", "parse_lock")


@dataclass(frozen=True, kw_only=True)
class Jar:
    """A pinned jar."""

    coordinates: Coordinates
    sha256: str

    @property
    def file_name(self) -> str:
        return f"{self.coordinates.artifact}-{self.coordinates.version}.jar"


def parse_lock(text: str) -> tuple[Jar, ...]:
    """Parses lines of a SHA-256 and Maven coordinates; # starts a comment."""
    return tuple(_parse(line) for line in text.splitlines() if line and not line.startswith("#"))


def _parse(line: str) -> Jar:
    sha256, coordinates = line.split()
    return Jar(sha256=sha256, coordinates=Coordinates(*coordinates.split(":")))


def damaged_jars(directory: Path, jars: Iterable[Jar]) -> list[str]:
    """The names of jars that are missing or do not match their checksum. Takes 0.1 s, so every start verifies them."""
    return [jar.file_name for jar in jars if _sha256(directory / jar.file_name) != jar.sha256]


def _sha256(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return None


@dataclass(frozen=True, kw_only=True)
class JarSet:
    """The jars of one release of a program."""

    program: str
    """The name of the program, for messages."""
    version: str
    jars: tuple[Jar, ...]
    instead: str = ""
    """An alternative to the download, for the error message."""

    @property
    def what(self) -> str:
        return f"{self.program} {self.version}"

    def directory(self, cache: Path | None = None) -> Path:
        """The directory of the downloaded jars."""
        return (cache or cache_directory(self.program.lower().replace(" ", "-"))) / self.version

    def ensure(self, cache: Path | None = None, source: Source | None = None) -> Path:
        """The directory with the jars, downloaded if they are missing or damaged.

        1. Intact jars in the cache are used as they are.
        2. Otherwise take a lock, so that one of several processes downloads. Check again, download into a temporary
           directory, verify, and rename it into place: the directory is complete whenever it exists.
        3. Damaged downloads are repeated once without the source's local cache; then DamagedJarsError.
        """
        directory = self.directory(cache)
        if not damaged_jars(directory, self.jars):
            return directory
        with locked(directory.with_name(f"{self.version}.lock")):
            if damaged_jars(directory, self.jars):
                self._fetch(directory, source or choose_source(self.what, self.instead))
        return directory

    def _fetch(self, directory: Path, source: Source) -> None:
        fetching = f".fetching-{self.version}-"
        for leftover in directory.parent.glob(f"{fetching}*"):  # of a process that was killed: we hold the lock
            shutil.rmtree(leftover)
        with tempfile.TemporaryDirectory(dir=directory.parent, prefix=fetching) as place:
            work = Path(place)
            wanted = [jar.coordinates for jar in self.jars]
            fetched = source.fetch(wanted, work / "first")
            if damaged_jars(fetched, self.jars):
                fetched = source.fetch(wanted, work / "second", anew=True)
            damaged = damaged_jars(fetched, self.jars)
            if damaged:
                raise DamagedJarsError(self.what, directory, source.name, damaged)
            _replace(directory, fetched, work / "old")


def _replace(directory: Path, fetched: Path, old: Path) -> None:
    """A running program keeps its open jars when their directory is moved."""
    if directory.exists():
        shutil.move(directory, old)
    os.replace(fetched, directory)
