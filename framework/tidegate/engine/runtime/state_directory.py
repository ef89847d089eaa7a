"""Opens the local stores of tasks, wherever they are."""

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
    """Under `directory`, one store for each task; in memory if there is none."""

    def __init__(self, directory: Path | None, settings: Settings) -> None:
        self.directory = directory if settings.store == "rocksdb" else None
        self._root = directory
        third = settings.store_memory_mb * (1 << 20) // 3
        self._options = RocksOptions(cache_bytes=2 * third, write_buffers_bytes=third)

    def open(self, service: str, number: int, *, buffered: int) -> SnapshotStore:
        """StoreCorruptError: it must be destroyed first. `buffered`: how many changes may wait in memory."""
        if self.directory is None:
            return MemoryStore()
        store = RocksStore(self._path(service, number), options=self._options)
        return WriteBuffer(store, entries=buffered)

    def adopt(self, service: str, number: int, directory: Path, *, buffered: int) -> SnapshotStore:
        """Open what was brought into this directory, instead of what the task has, which is closed."""
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

    def beside(self, purpose: str, name: str) -> Path:
        """A directory for what is on its way from a store or to one; it is not there yet."""
        if self._root is None:
            self._root = Path(tempfile.mkdtemp(prefix="tidegate-"))
            weakref.finalize(self, shutil.rmtree, self._root, ignore_errors=True)
        directory = self._root / f".{purpose}" / name
        shutil.rmtree(directory, ignore_errors=True)
        directory.parent.mkdir(parents=True, exist_ok=True)
        return directory

    def clear_left_behind(self) -> None:
        """What was on its way when the process ended."""
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
        """What is on disk of all tasks, those of services that are no more included."""
        root, attempts = self._root, 5
        while root is not None and root.exists():
            attempts -= 1
            try:
                shutil.rmtree(root)
            except OSError:  # a download that nobody waits for any more may have put one more file there
                if not attempts:
                    raise

    def _path(self, service: str, number: int) -> Path:
        assert self.directory is not None  # noqa: S101  callers asked
        return self.directory / service / str(number)
