"""The lock of an embedded log: one process owns it. The lock file names the owner."""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
from pathlib import Path

from tidegate.errors import LogInUseError, LogUnavailableError

__all__ = ("OwnerLock",)


class OwnerLock:
    """An flock on DIR/owner.lock. The kernel releases it when the process ends, however it ends."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._path = directory / "owner.lock"
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """LogInUseError: another process, or another log of this process, holds the lock."""
        descriptor = self._open()
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise LogInUseError(self._directory, self._holder()) from None
        except OSError as error:
            os.close(descriptor)
            raise LogUnavailableError(f"{self._path} cannot be locked: {error.strerror}") from error
        self._descriptor = descriptor
        self._write_holder(descriptor)

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self) -> int:
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except (FileExistsError, NotADirectoryError) as error:
            raise LogUnavailableError(
                f"{self._directory} cannot hold a log: it is not a directory. Choose another one (--data DIR)."
            ) from error
        except OSError as error:
            raise LogUnavailableError(
                f"{self._directory} cannot hold a log: {error.strerror}. Give this user write access, or choose "
                f"another directory (--data DIR)."
            ) from error

    def _write_holder(self, descriptor: int) -> None:
        """Name the owner, for the error message of other processes. If the disk is full, the lock still holds."""
        text = json.dumps({"pid": os.getpid(), "command": " ".join(sys.argv), "started": int(time.time())})
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, text.encode(), 0)
        except OSError:
            return

    def _holder(self) -> str:
        try:
            holder = json.loads(self._path.read_text())
            return f"process {holder['pid']} ({holder['command']})"
        except (OSError, ValueError, KeyError, TypeError):
            return "another process"
