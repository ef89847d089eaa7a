"""Where an app keeps its things on this machine.

DATA/APP/                 the embedded log and its stores, one owner; or, with a broker:
DATA/APP/worker-0/        what one worker keeps of its tasks: local stores, which are only a cache
DATA/APP/worker-1/        another worker's, on the same machine
DATA/APP/checkpoints/     checkpoints, unless they are kept elsewhere
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

_MOST: Final = 1024


def on_kafka(settings: Settings) -> bool:
    return settings.broker.startswith("kafka://")


def data_directory(app: str, settings: Settings) -> Path:
    """The app's own directory, whoever works in it."""
    named = "" if on_kafka(settings) else settings.broker.removeprefix("embedded://")
    return (Path(named) if named else settings.data) / app


def checkpoint_url(app: str, settings: Settings) -> str:
    """Where the checkpoints of apps are kept; each has a folder of its own there."""
    return settings.checkpoint_storage or str(data_directory(app, settings).absolute().parent)


def stores_directory(app: str, settings: Settings) -> Path:
    """The stores of the one worker that owns an embedded log."""
    return data_directory(app, settings) / "stores"


class Slot:
    """A directory that belongs to one worker process as long as it lives.

    Workers on one machine may share `--data`: each takes the first directory that is free. A worker that starts again
    finds what it, or one like it, had; the group gives tasks to whoever has their state."""

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
        for number in range(_MOST):
            directory = root / f"worker-{number}"
            descriptor = _lock(directory)
            if descriptor is not None:
                return cls(directory, descriptor)
        raise LogUnavailableError(f"{root} has {_MOST} workers already; give this one another directory (--data DIR)")


class FreeSlots:
    """The directories of workers that do not run now, on this machine."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def destroy_all(self) -> None:
        """Remove what is stored in them."""
        for directory in sorted(self._root.glob("worker-*")):
            descriptor = _lock(directory)
            if descriptor is not None:
                slot = Slot(directory, descriptor)
                shutil.rmtree(slot.stores, ignore_errors=True)
                slot.release()


def _lock(directory: Path) -> int | None:
    """None: another process holds it. The lock goes when its process goes, however that ends."""
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
