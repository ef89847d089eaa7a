"""Files on every file system that Spark can write to, through Hadoop: local directories, HDFS, object stores.

A closed file is durable in an object store, and replicated in HDFS. In a local directory it is not: Spark does not sync
files, and Hadoop's checksummed local file system does not even on request. Local files are therefore synced here with
system calls, which work for files that other processes have written.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

__all__ = ("Files", "joined")


def joined(*parts: str) -> str:
    return "/".join(part.rstrip("/") for part in parts)


class Files:
    """The file system of a path. Paths are strings."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        context: Any = spark.sparkContext
        self._jvm: Any = context._jvm  # noqa: SLF001  Spark has no other way to Hadoop's classes
        self._path = self._jvm.org.apache.hadoop.fs.Path
        configuration = context._jsc.hadoopConfiguration()  # noqa: SLF001
        self._system = self._path(root).getFileSystem(configuration)
        self._context = self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(self._system.getUri(), configuration)
        rename = self._jvm.org.apache.hadoop.fs.Options.Rename
        self._overwrite = context._gateway.new_array(rename, 1)  # noqa: SLF001
        self._overwrite[0] = rename.OVERWRITE
        self._local = self._system.getUri().getScheme() == "file"

    def exists(self, path: str) -> bool:
        return bool(self._system.exists(self._path(path)))

    def remove(self, path: str) -> None:
        self._system.delete(self._path(path), True)

    def names(self, directory: str) -> list[str]:
        """The names in a directory; empty if it does not exist."""
        if not self.exists(directory):
            return []
        return sorted(status.getPath().getName() for status in self._system.listStatus(self._path(directory)))

    def below(self, directory: str, prefix: str = "") -> Iterator[str]:
        """All data files below a directory, relative to it."""
        if not self.exists(directory):
            return
        for status in self._system.listStatus(self._path(directory)):
            name = status.getPath().getName()
            if name.startswith(("_", ".")):
                continue
            if status.isDirectory():
                yield from self.below(joined(directory, name), f"{prefix}{name}/")
            else:
                yield f"{prefix}{name}"

    def move(self, source: str, target: str) -> None:
        """Rename, replacing the target; atomic where the file system supports it. Durable after `sync_renames`."""
        if self._local:
            here = self._here(target)
            _make_here(here.parent)
            _move_here(self._here(source), here)
            return
        goal = self._path(target)
        self._system.mkdirs(goal.getParent())
        self._context.rename(self._path(source), goal, self._overwrite)

    def sync(self, paths: Iterable[str], below: str) -> None:
        """Make files of other processes durable, and their directories up to `below`."""
        if not self._local:
            return
        files, top = [self._here(path) for path in paths], self._here(below)
        for file in files:
            _sync_here(file)
        inside = {parent for file in files for parent in file.parents if parent.is_relative_to(top)}
        for directory in sorted(inside, reverse=True):
            _sync_here(directory)

    def sync_renames(self, paths: Iterable[str]) -> None:
        """Make renames durable: sync the directories of these paths."""
        if self._local:
            for directory in sorted({self._here(path).parent for path in paths}):
                if directory.is_dir():  # the directory of a day may have been deleted since
                    _sync_here(directory)

    def _here(self, path: str) -> Path:
        return Path(self._path(path).toUri().getPath())

    def read_json(self, path: str) -> Any:
        stream = self._system.open(self._path(path))
        try:
            return json.loads(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write_json(self, path: str, value: Any) -> None:
        """Write atomically and durably."""
        beside = f"{path}.{uuid.uuid4().hex}.tmp"
        if self._local:
            _write_here(self._here(beside), json.dumps(value).encode())
            self.move(beside, path)
            self.sync_renames([path])
            return
        stream = self._system.create(self._path(beside), True)
        try:
            stream.write(bytearray(json.dumps(value).encode()))
            stream.hsync()
        finally:
            stream.close()
        self.move(beside, path)


def _write_here(path: Path, raw: bytes) -> None:
    _make_here(path.parent)
    with path.open("wb") as file:
        file.write(raw)
        file.flush()
        os.fsync(file.fileno())


def _make_here(directory: Path) -> None:
    """Create a directory durably: its parent is synced."""
    if directory.is_dir():
        return
    _make_here(directory.parent)
    directory.mkdir(exist_ok=True)
    _sync_here(directory.parent)


def _sync_here(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _move_here(source: Path, target: Path) -> None:
    """Rename without Hadoop's checksum files. Hadoop renames a file and its checksum one after the other; a crash
    between them leaves a file with the checksum of its predecessor, which Spark refuses to read."""
    target.with_name(f".{target.name}.crc").unlink(missing_ok=True)
    os.replace(source, target)
    source.with_name(f".{source.name}.crc").unlink(missing_ok=True)
