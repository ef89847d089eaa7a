"""Pinned jars: whether they are what they should be, and where they are kept."""

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
    """One that is pinned."""

    coordinates: Coordinates
    sha256: str

    @property
    def file_name(self) -> str:
        return f"{self.coordinates.artifact}-{self.coordinates.version}.jar"


def parse_lock(text: str) -> tuple[Jar, ...]:
    """Lines of a SHA-256 and Maven coordinates; # begins a comment."""
    return tuple(_parse(line) for line in text.splitlines() if line and not line.startswith("#"))


def _parse(line: str) -> Jar:
    sha256, coordinates = line.split()
    return Jar(sha256=sha256, coordinates=Coordinates(*coordinates.split(":")))


def damaged_jars(directory: Path, jars: Iterable[Jar]) -> list[str]:
    """The names of those that are missing or have another content. It takes 0.1 s, so it is done at each start."""
    return [jar.file_name for jar in jars if _sha256(directory / jar.file_name) != jar.sha256]


def _sha256(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return None


@dataclass(frozen=True, kw_only=True)
class JarSet:
    """Jars that belong together, as one release of a program."""

    program: str
    """Whose they are: in messages."""
    version: str
    jars: tuple[Jar, ...]
    instead: str = ""
    """What else to do when they cannot be had."""

    @property
    def what(self) -> str:
        return f"{self.program} {self.version}"

    def directory(self, cache: Path | None = None) -> Path:
        """Where they are, once they have been fetched."""
        return (cache or cache_directory(self.program.lower().replace(" ", "-"))) / self.version

    def ensure(self, cache: Path | None = None, source: Source | None = None) -> Path:
        """The directory with the jars, fetched if they are not there or damaged.

        1. Whole jars in the cache are used as they are.
        2. Otherwise, under a lock, so that of two processes one fetches and the other finds them: look again, fetch
           into a directory beside, verify, and rename it into place. So the directory is whole whenever it is there.
        3. Jars that arrive damaged are fetched once more, past what the source keeps on this machine; then it is an
           error.
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
        for left in directory.parent.glob(f"{fetching}*"):  # by one who was killed: we hold the lock
            shutil.rmtree(left)
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
    """A program that runs keeps its open jars when their directory is moved away."""
    if directory.exists():
        shutil.move(directory, old)
    os.replace(fetched, directory)
