"""Opens the local stores of tasks, wherever they are."""

from __future__ import annotations

import shutil
from pathlib import Path

from tidegate.settings import Settings
from tidegate.state.base import Store
from tidegate.state.buffered import BufferedStore
from tidegate.state.memory import MemoryStore
from tidegate.state.rocksdb import RocksOptions, RocksStore

__all__ = ("Stores",)


class Stores:
    """Under `directory`, one store for each task; in memory if there is none."""

    def __init__(self, directory: Path | None, settings: Settings) -> None:
        self.directory = directory if settings.store == "rocksdb" else None
        self._root = directory
        half = settings.store_memory_mb * (1 << 20) // 2
        self._options = RocksOptions(cache_bytes=half, write_buffers_bytes=half)

    def open(self, service: str, number: int, *, buffered: int = 0) -> Store:
        """StoreCorruptError: it must be destroyed first. `buffered`: how many changes may wait in memory."""
        if self.directory is None:
            return MemoryStore()
        store = RocksStore(self._path(service, number), options=self._options)
        return BufferedStore(store, entries=buffered) if buffered else store

    def destroy(self, service: str, number: int) -> None:
        if self.directory is not None:
            shutil.rmtree(self._path(service, number), ignore_errors=True)

    def destroy_all(self) -> None:
        """What is on disk of all tasks, those of services that are no more included."""
        if self._root is not None and self._root.exists():
            shutil.rmtree(self._root)

    def _path(self, service: str, number: int) -> Path:
        assert self.directory is not None  # noqa: S101  callers asked
        return self.directory / service / str(number)
