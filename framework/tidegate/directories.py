"""The directories of an app on this machine.

DATA/APP/                 the embedded log and its stores, owned by one process; or, with a broker:
DATA/APP/worker-0/        the local stores of one worker, a cache of its changelogs
DATA/APP/worker-1/        those of another worker on the same machine
DATA/APP/checkpoints/     checkpoints, unless checkpoint_storage is set
DATA/APP/savepoints/      savepoints, likewise
"""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path
from typing import Final

from tidegate.errors import LogUnavailableError
from tidegate.settings import Settings

__all__ = ("FreeSlots", "Slot", "checkpoint_url", "data_directory", "on_kafka", "stores_directory")

_MAX_WORKERS: Final = 1024


def on_kafka(settings: Settings) -> bool:
    return settings.broker.startswith("kafka://")


def data_directory(app: str, settings: Settings) -> Path:
    """The app's own directory, shared by its workers."""
    named = "" if on_kafka(settings) else settings.broker.removeprefix("embedded://")
    return (Path(named) if named else settings.data) / app


def checkpoint_url(app: str, settings: Settings) -> str:
    """The URL of the checkpoint storage; each app has a folder of its own there."""
    return settings.checkpoint_storage or str(data_directory(app, settings).absolute().parent)


def stores_directory(app: str, settings: Settings) -> Path:
    """The stores of the one worker that owns an embedded log."""
    return data_directory(app, settings) / "stores"


class Slot:
    """A directory that is locked by one worker process for its lifetime.

    Workers on one machine may share `--data`: each takes the first free directory. A restarted worker thus finds the
    stores of a previous one, and the group prefers to assign tasks to workers that have their state."""

    def __init__(self, directory: Path, descriptor: int) -> None:
        self.directory, self._descriptor = directory, descriptor

    @property
    def stores(self) -> Path:
        return self.directory / "stores"

    @property
    def name(self) -> str:
        return self.directory.name

    def release(self) -> None:
        os.close(self._descriptor)

    @classmethod
    def take(cls, root: Path) -> Slot:
        for number in range(_MAX_WORKERS):
            directory = root / f"worker-{number}"
            descriptor = _lock(directory)
            if descriptor is not None:
                return cls(directory, descriptor)
        raise LogUnavailableError(f"{root} has {_MAX_WORKERS} workers already; choose another directory (--data DIR)")


class FreeSlots:
    """The slots on this machine that no running worker holds."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def destroy_all(self) -> None:
        """Delete the stores in them."""
        for directory in sorted(self._root.glob("worker-*")):
            descriptor = _lock(directory)
            if descriptor is not None:
                slot = Slot(directory, descriptor)
                shutil.rmtree(slot.stores, ignore_errors=True)
                slot.release()


def _lock(directory: Path) -> int | None:
    """None: another process holds the lock. The operating system releases it when that process ends."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise LogUnavailableError(
            f"{directory} cannot hold a worker's state: {error.strerror}. Give this user write access, or choose "
            f"another directory (--data DIR)."
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor
