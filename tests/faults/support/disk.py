"""Small file systems, and how to fill them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

__all__ = ("Ballast", "Mount", "mounts")

SIZE = 48 << 20
Mount = Callable[[Path], Path]


@contextmanager
def mounts() -> Iterator[Mount]:
    """Makes a small file system of its own at a directory."""
    mounted: list[Path] = []

    def make(directory: Path) -> Path:
        directory.mkdir(parents=True, exist_ok=True)
        command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(directory)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            pytest.skip("there is no mount command: a full disk cannot be made here")
        if done.returncode:
            pytest.skip(f"a tmpfs cannot be mounted here ({done.stderr.strip()}): a full disk cannot be made")
        mounted.append(directory)
        return directory

    try:
        yield make
    finally:
        for directory in mounted:
            subprocess.run(["umount", str(directory)], check=True)


class Ballast:
    """A file that takes all the room but a little."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / "ballast"

    def load(self, *, leave: int) -> None:
        room = os.statvfs(self._file.parent)
        size = room.f_bavail * room.f_frsize - leave
        with self._file.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, size)

    def fill(self) -> None:
        """Take all free space, also while others write."""
        with self._file.open("ab", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(4096))
        assert os.statvfs(self._file.parent).f_bavail == 0

    def drop(self) -> None:
        self._file.unlink()
