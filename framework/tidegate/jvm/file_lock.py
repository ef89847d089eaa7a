"""File locks: the kernel releases them when their last holder ends, however it ends."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

__all__ = ("is_locked", "locked", "open_locked", "try_lock", "wait_until_free")

_PAUSE: Final = 0.02
"""Seconds between polls of a lock with a deadline: flock has no timeout."""


def open_locked(path: Path) -> int:
    """A descriptor that holds the lock; waits for it."""
    descriptor = _open(path)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def try_lock(path: Path) -> int | None:
    """Like `open_locked`, without waiting. None: another process holds the lock."""
    descriptor = _open(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


@contextmanager
def locked(path: Path) -> Iterator[None]:
    descriptor = open_locked(path)
    try:
        yield
    finally:
        os.close(descriptor)


def is_locked(path: Path) -> bool:
    if not path.exists():
        return False
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        # Shared, so that two concurrent checks do not report each other as the holder.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def wait_until_free(path: Path, seconds: float) -> bool:
    """Whether the holder released the lock in time."""
    deadline = time.monotonic() + seconds
    while is_locked(path):
        if time.monotonic() > deadline:
            return False
        time.sleep(_PAUSE)
    return True


def _open(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
