"""The local stores of a worker's tasks: on disk below one directory, or in memory."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path

from tidegate.settings import Settings
from tidegate.state.base import SnapshotStore
from tidegate.state.memory import MemoryStore
from tidegate.state.rocksdb import RocksOptions, RocksStore
from tidegate.state.write_buffer import WriteBuffer

__all__ = ("StateDirectory",)


class StateDirectory:
    """One store per task below `directory`; None: in memory."""

    def __init__(self, directory: Path | None, settings: Settings) -> None:
        self.directory = directory if settings.store == "rocksdb" else None
        self._root = directory
        third = settings.store_memory_mb * (1 << 20) // 3
        self._options = RocksOptions(cache_bytes=2 * third, write_buffers_bytes=third)

    def open(self, service: str, number: int, *, buffered: int) -> SnapshotStore:
        """StoreCorruptError: the store must be destroyed first. `buffered`: changes that may be buffered in memory."""
        if self.directory is None:
            return MemoryStore()
        store = RocksStore(self._path(service, number), options=self._options)
        return WriteBuffer(store, entries=buffered)

    def adopt(self, service: str, number: int, directory: Path, *, buffered: int) -> SnapshotStore:
        """Replace the task's store, which is closed, with the one in this directory, and open it."""
        if self.directory is None:
            try:
                return MemoryStore.load(directory)
            finally:
                shutil.rmtree(directory, ignore_errors=True)
        self.destroy(service, number)
        path = self._path(service, number)
        path.parent.mkdir(parents=True, exist_ok=True)
        directory.rename(path)
        return self.open(service, number, buffered=buffered)

    def scratch_directory(self, purpose: str, name: str) -> Path:
        """A path, on the file system of the stores, for a snapshot being written or downloaded. Does not exist yet."""
        if self._root is None:
            self._root = Path(tempfile.mkdtemp(prefix="tidegate-"))
            weakref.finalize(self, shutil.rmtree, self._root, ignore_errors=True)
        directory = self._root / f".{purpose}" / name
        shutil.rmtree(directory, ignore_errors=True)
        directory.parent.mkdir(parents=True, exist_ok=True)
        return directory

    def clear_scratch(self) -> None:
        """Remove the scratch directories of an earlier process."""
        for directory in self._root.glob(".*/*") if self._root is not None else ():
            shutil.rmtree(directory, ignore_errors=True)

    def present(self) -> list[tuple[str, int]]:
        """The tasks that have a store on disk."""
        if self.directory is None:
            return []
        paths = self.directory.glob("*/*")
        return sorted((path.parent.name, int(path.name)) for path in paths if path.name.isdecimal())

    def destroy(self, service: str, number: int) -> None:
        if self.directory is not None:
            shutil.rmtree(self._path(service, number), ignore_errors=True)

    def destroy_all(self) -> None:
        """Remove all stores, including those of services that were removed from the code."""
        root, attempts = self._root, 5
        while root is not None and root.exists():
            attempts -= 1
            try:
                shutil.rmtree(root)
            except OSError:  # an abandoned download may have added a file meanwhile
                if not attempts:
                    raise

    def _path(self, service: str, number: int) -> Path:
        assert self.directory is not None  # noqa: S101  callers asked
        return self.directory / service / str(number)
