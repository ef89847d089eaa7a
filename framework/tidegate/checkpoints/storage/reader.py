"""Reads a checkpoint or a savepoint: the store and the in-flight records of each task."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tidegate.checkpoints.storage.checkpoint_storage import MANIFEST, CheckpointStorage, Folder, locate
from tidegate.checkpoints.storage.in_flight_format import InFlightRecord, decode_in_flight
from tidegate.checkpoints.storage.manifest import Manifest, TaskSnapshot, decode_manifest
from tidegate.errors import CheckpointDamagedError, StoreError
from tidegate.state.base import Store
from tidegate.state.memory import MemoryStore
from tidegate.state.rocksdb import RocksStore

__all__ = ("CheckpointReader", "open_checkpoint", "open_uri")

_DOWNLOADS: Final = 8
"""Files of a task that are downloaded concurrently."""


def open_checkpoint(storage: CheckpointStorage, id_: str | int) -> CheckpointReader:
    """By the epoch of a checkpoint, or the name of a savepoint. Raises CheckpointNotFoundError,
    CheckpointDamagedError."""
    manifest = storage.manifest(id_)
    return CheckpointReader(storage, storage.folder_of_manifest(manifest), manifest)


def open_uri(uri: str) -> CheckpointReader:
    """By location: `file:///…/savepoints/NAME`, `s3://…`, or a path."""
    folder, name = locate(uri)
    path = f"{name}/{MANIFEST}"
    return CheckpointReader(folder, name, decode_manifest(folder.get(path), folder.where(path)))


class CheckpointReader:
    """One checkpoint or savepoint. Its methods block: call them in a thread."""

    def __init__(self, storage: Folder, folder: str, manifest: Manifest) -> None:
        self.storage, self.folder, self.manifest = storage, folder, manifest

    @property
    def where(self) -> str:
        return self.storage.where(self.folder)

    def task(self, service: str, number: int) -> TaskSnapshot:
        found = self.manifest.task(service, number)
        if found is None:
            raise CheckpointDamagedError(self.where, f"it holds no task {service}.{number}")
        return found

    def download(self, task: TaskSnapshot, directory: Path) -> None:
        """Download the store of a task, verifying every file. Replaces the directory; removes it on a failure."""
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        try:
            with ThreadPoolExecutor(min(_DOWNLOADS, len(task.files) or 1)) as threads:
                fetched = [
                    threads.submit(self.storage.fetch, file, self.folder, directory / file.name) for file in task.files
                ]
                for future in fetched:
                    future.result()
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            raise

    def open_store(self, task: TaskSnapshot, directory: Path) -> Store:
        """The state of a task at the cut, read-only. The caller removes the directory afterwards."""
        self.download(task, directory)
        try:
            return open_downloaded(task, directory)
        except StoreError as error:
            raise CheckpointDamagedError(self.where, f"the store of {task.task} cannot be read: {error}") from error

    def in_flight(self, task: TaskSnapshot) -> Iterator[InFlightRecord]:
        """The records that were sent to a task before the cut and not processed before it, in order."""
        if task.in_flight is None:
            return iter(())
        raw = self.storage.read(task.in_flight, self.folder)
        return decode_in_flight(raw, self.storage.where(f"{self.folder}/{task.in_flight.path}"))

    def verify(self) -> None:
        """Read and verify every file, without keeping it. CheckpointDamagedError: names the first damaged file."""
        files = {file.path: file for task in self.manifest.tasks for file in task.every_file}
        for file in files.values():
            self.storage.read(file, self.folder)


def open_downloaded(task: TaskSnapshot, directory: Path) -> Store:
    if task.store == "memory":
        return MemoryStore.load(directory)
    return RocksStore(directory, read_only=True)
