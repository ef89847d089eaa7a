"""Files wherever Spark can write them, through Hadoop's file systems: a directory here, HDFS, an object store.

What was closed is durable in an object store, and has copies in HDFS. In a directory here it is not: Spark does not
sync what it writes, and Hadoop, where it keeps checksums, does not even if asked to. So that is done here, by the
kernel's own calls, for which it does not matter who has written a file.
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
    """The file system that a path is on. Paths are text."""

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
        """What a directory holds; nothing, if there is none."""
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
        """In place of what is there, at once on file systems that can. Durable after `sync_places`."""
        if self._local:
            here = self._here(target)
            _make_here(here.parent)
            _move_here(self._here(source), here)
            return
        goal = self._path(target)
        self._system.mkdirs(goal.getParent())
        self._context.rename(self._path(source), goal, self._overwrite)

    def sync(self, paths: Iterable[str], below: str) -> None:
        """Files that others have written, and the directories in which they are, up to this one, are durable."""
        if not self._local:
            return
        files, top = [self._here(path) for path in paths], self._here(below)
        for file in files:
            _sync_here(file)
        inside = {parent for file in files for parent in file.parents if parent.is_relative_to(top)}
        for directory in sorted(inside, reverse=True):
            _sync_here(directory)

    def sync_places(self, paths: Iterable[str]) -> None:
        """That these are where they are is durable."""
        if self._local:
            for directory in sorted({self._here(path).parent for path in paths}):
                if directory.is_dir():  # a day that somebody has removed since it was written is gone
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
        """It is there whole, and durable, or not at all."""
        beside = f"{path}.{uuid.uuid4().hex}.tmp"
        if self._local:
            _write_here(self._here(beside), json.dumps(value).encode())
            self.move(beside, path)
            self.sync_places([path])
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
    """A directory that is new is durable in the one above it."""
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
    """Hadoop keeps a file's checksum beside it, and moves one after the other. Who dies between them leaves a file that
    does not fit the checksum of the one before it, and that Spark refuses to read. So what is moved has none."""
    target.with_name(f".{target.name}.crc").unlink(missing_ok=True)
    os.replace(source, target)
    source.with_name(f".{source.name}.crc").unlink(missing_ok=True)
