"""The storage of checkpoints: a tree of files behind fsspec, on disk or in an object store.

    URL/APP/checkpoints/00000042/manifest.json              put last, atomically: then the checkpoint is complete
    URL/APP/checkpoints/00000042/files/matchmaker.0/…       files uploaded for it; later checkpoints may share them
    URL/APP/savepoints/NAME/manifest.json                   the same, but nothing is shared, or deleted by retention
    URL/APP/savepoints/NAME/42/matchmaker.0/…

When a file can be deleted: a file is uploaded for one checkpoint, into its folder. A later checkpoint shares it only if
the newest complete checkpoint of that time does. So a file that is neither in the newest complete checkpoint nor in any
other retained one is in no checkpoint under way, and will never be in one: it can be deleted, even by a leader that was
fenced and does not know it yet.
"""

from __future__ import annotations

import errno
import hashlib
import os
import posixpath
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Self

from tidegate.checkpoints.storage.manifest import FileRef, Manifest, decode_manifest, encode_manifest
from tidegate.errors import (
    CheckpointDamagedError,
    CheckpointNotFoundError,
    CheckpointStorageError,
    StorageFullError,
    UsageError,
)

__all__ = ("CheckpointStorage", "Folder", "check_name", "digest_of", "locate")

MANIFEST: Final = "manifest.json"
_CHECKPOINTS: Final = "checkpoints"
_SAVEPOINTS: Final = "savepoints"
_NAME: Final = re.compile(r"(?!\d+\Z)[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_BLOCK: Final = 1 << 20


def check_name(name: str) -> str:
    """A savepoint's name is the name of a folder. A number would be the id of a checkpoint."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot be the name of a savepoint: use letters, digits, '.', '_' and '-', at most 100 "
            f"characters, and not digits alone"
        )
    return name


def digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Folder:
    """A folder in a storage. All methods block: call them in a thread."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._fs, self.root = _open(self.url)
        self._local = "file" in _protocols(self._fs)

    def under(self, path: str) -> str:
        return posixpath.normpath(posixpath.join(self.root, path))

    def where(self, path: str) -> str:
        """The full location of a path, for messages."""
        if self._local:
            return posixpath.normpath(posixpath.join(self.url.removeprefix("file://"), path))
        return f"{self.url.partition('://')[0]}://{self.under(path)}"

    # -- reading -----------------------------------------------------------------------------------------------------
    def names(self, path: str = "") -> list[str]:
        """The names in a folder, sorted; empty if the folder does not exist."""
        with self._errors():
            self._fs.invalidate_cache()
            try:
                found = self._fs.ls(self.under(path), detail=False)
            except FileNotFoundError:
                return []
            return sorted(posixpath.basename(name.rstrip("/")) for name in found if name.rstrip("/"))

    def files(self, path: str = "") -> list[str]:
        """All files below a folder, relative to this one."""
        with self._errors():
            self._fs.invalidate_cache()
            try:
                found = self._fs.find(self.under(path))
            except FileNotFoundError:
                return []
            return sorted(posixpath.relpath(name, self.root) for name in found)

    def exists(self, path: str) -> bool:
        with self._errors():
            self._fs.invalidate_cache()
            return bool(self._fs.isfile(self.under(path)))

    def fingerprint_of(self, path: str) -> str | None:
        """Changes when the file is replaced; computed without reading it. None: there is no such file."""
        with self._errors():
            self._fs.invalidate_cache()
            try:
                return str(self._fs.ukey(self.under(path)))
            except FileNotFoundError:
                return None

    def get(self, path: str) -> bytes:
        """CheckpointNotFoundError: there is no such file."""
        with self._errors():
            try:
                return bytes(self._fs.cat_file(self.under(path)))
            except FileNotFoundError:
                raise CheckpointNotFoundError(self.where(path)) from None

    def fetch(self, file: FileRef, folder: str, target: Path) -> None:
        """Download a file of the checkpoint in this folder. CheckpointDamagedError: it is missing, or differs from what
        was uploaded."""
        path = posixpath.join(folder, file.path)
        digest, size = hashlib.sha256(), 0
        with self._errors():
            try:
                with self._fs.open(self.under(path), "rb") as source, _LocalFile(target) as local:
                    while block := source.read(_BLOCK):
                        digest.update(block)
                        size += len(block)
                        local.write(block)
            except FileNotFoundError:
                raise CheckpointDamagedError(self.where(path), "it is missing") from None
        _verify(self.where(path), file, size, digest.hexdigest())

    def read(self, file: FileRef, folder: str) -> bytes:
        """Like `fetch`, into memory."""
        path = posixpath.join(folder, file.path)
        try:
            raw = self.get(path)
        except CheckpointNotFoundError:
            raise CheckpointDamagedError(self.where(path), "it is missing") from None
        _verify(self.where(path), file, len(raw), hashlib.sha256(raw).hexdigest())
        return raw

    # -- writing -----------------------------------------------------------------------------------------------------
    def put(self, path: str, raw: bytes) -> None:
        """Atomic: a reader sees the whole file or none."""
        with self._errors():
            if not self._local:
                self._fs.pipe_file(self.under(path), raw)
                return
            target = Path(self.under(path))
            target.parent.mkdir(parents=True, exist_ok=True)
            new = target.with_name(f"{target.name}.{os.getpid()}.new")
            with new.open("wb") as file:
                file.write(raw)
                file.flush()
                os.fsync(file.fileno())
            new.replace(target)

    def upload(self, local: Path, path: str) -> None:
        with self._errors():
            if self._local:
                Path(self.under(path)).parent.mkdir(parents=True, exist_ok=True)
            self._fs.put_file(str(local), self.under(path))

    def delete(self, path: str) -> None:
        """Deletes a file, if it exists."""
        with self._errors(), suppress(FileNotFoundError):
            self._fs.rm_file(self.under(path))

    def delete_folder(self, path: str) -> None:
        with self._errors(), suppress(FileNotFoundError):
            self._fs.rm(self.under(path), recursive=True)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """fsspec's filesystems raise OSErrors, and errors of their own libraries."""
        try:
            yield
        except (CheckpointDamagedError, CheckpointNotFoundError, CheckpointStorageError, FileNotFoundError):
            raise
        except StorageFullError:
            raise  # the local disk is full, not the storage
        except Exception as error:
            raise CheckpointStorageError(self.url, error) from error


class CheckpointStorage(Folder):
    """The checkpoints and savepoints of one app."""

    def __init__(self, url: str, app: str) -> None:
        super().__init__(f"{url.rstrip('/')}/{app}")
        self.app = app

    # -- finding -----------------------------------------------------------------------------------------------------
    @staticmethod
    def folder_of(epoch: int, name: str | None = None) -> str:
        return f"{_CHECKPOINTS}/{epoch:08d}" if name is None else f"{_SAVEPOINTS}/{check_name(name)}"

    def epochs(self) -> list[int]:
        """The epochs that have a checkpoint folder, complete or not, newest first."""
        return sorted((int(name) for name in self.names(_CHECKPOINTS) if name.isdecimal()), reverse=True)

    def checkpoints(self) -> list[int]:
        """The epochs of the complete checkpoints, newest first."""
        return [epoch for epoch in self.epochs() if self.exists(f"{self.folder_of(epoch)}/{MANIFEST}")]

    def savepoint_folders(self) -> list[str]:
        """The names of savepoint folders, complete or not."""
        return [name for name in self.names(_SAVEPOINTS) if _NAME.fullmatch(name)]

    def savepoints(self) -> list[str]:
        return [name for name in self.savepoint_folders() if self.exists(f"{_SAVEPOINTS}/{name}/{MANIFEST}")]

    def fingerprint(self, id_: str | int) -> str | None:
        """The fingerprint of a manifest: changes when the checkpoint is replaced. None: there is none."""
        return self.fingerprint_of(f"{self._folder(id_)}/{MANIFEST}")

    def manifest(self, id_: str | int) -> Manifest:
        """The manifest of a checkpoint, by its epoch, or of a savepoint, by its name."""
        return self.manifest_in(self._folder(id_))

    def _folder(self, id_: str | int) -> str:
        return self.folder_of(int(id_)) if str(id_).isdecimal() else self.folder_of(0, str(id_))

    def manifest_in(self, folder: str) -> Manifest:
        path = f"{folder}/{MANIFEST}" if folder else MANIFEST
        return decode_manifest(self.get(path), self.where(path))

    def missing(self, epoch: int) -> list[str]:
        """The missing files of a complete checkpoint; its manifest, if that cannot be read."""
        folder = self.folder_of(epoch)
        try:
            paths = self.manifest_in(folder).paths
        except (CheckpointDamagedError, CheckpointNotFoundError):
            return [f"{folder}/{MANIFEST}"]
        return sorted(self._referred(folder, paths) - set(self.files(_CHECKPOINTS)))

    def folder_of_manifest(self, manifest: Manifest) -> str:
        return self.folder_of(manifest.epoch, manifest.name)

    # -- changing ----------------------------------------------------------------------------------------------------
    def put_manifest(self, manifest: Manifest) -> None:
        """Completes the checkpoint."""
        self.put(f"{self.folder_of_manifest(manifest)}/{MANIFEST}", encode_manifest(manifest))

    def delete_savepoint(self, name: str) -> None:
        """Deletes the manifest first: without it the savepoint is incomplete, whatever happens next."""
        folder = self.folder_of(0, name)
        if not self.exists(f"{folder}/{MANIFEST}"):
            raise CheckpointNotFoundError(self.where(folder))
        self.delete(f"{folder}/{MANIFEST}")
        self.delete_folder(folder)

    def retain(self, keep: int) -> list[int]:
        """Delete all complete checkpoints except the newest `keep`, and files that no checkpoint refers to. Folders of
        epochs after the newest complete checkpoint stay: one may be under way. Returns the deleted epochs."""
        complete = self.checkpoints()
        for epoch in complete[keep:]:
            self.delete(f"{self.folder_of(epoch)}/{MANIFEST}")
        if complete:
            self.sweep(complete[0])
        return complete[keep:]

    def sweep(self, before: int) -> None:
        """Delete files that no complete checkpoint refers to. `before`: all epochs below are complete or aborted."""
        kept = self.checkpoints()
        folders = {epoch: self.folder_of(epoch) for epoch in kept}
        try:
            referred = set[str]().union(
                *(self._referred(folder, self.manifest_in(folder).paths) for folder in folders.values())
            )
        except CheckpointDamagedError:
            return  # the files that it refers to are unknown, so none can be deleted until it is deleted itself
        for epoch in self.epochs():
            if epoch >= before or epoch in folders:
                continue
            found = self.files(self.folder_of(epoch))
            for path in found:
                if path not in referred:
                    self.delete(path)
            if not referred & set(found):
                self.delete_folder(self.folder_of(epoch))

    def sweep_savepoint(self, name: str, epoch: int) -> None:
        """Delete the files of a savepoint that was aborted in this epoch."""
        folder = self.folder_of(epoch, name)
        if not self.exists(f"{folder}/{MANIFEST}"):
            self.delete_folder(f"{folder}/{epoch}")

    @staticmethod
    def _referred(folder: str, paths: Iterable[str]) -> set[str]:
        """The files that a manifest in this folder refers to, as paths like those of `files`."""
        return {posixpath.normpath(posixpath.join(folder, path)) for path in paths}


def locate(uri: str) -> tuple[Folder, str]:
    """The parent folder and the name of a checkpoint or savepoint, from its location with or without its manifest."""
    folder = uri.rstrip("/").removesuffix(f"/{MANIFEST}")
    parent, _, name = folder.rpartition("/")
    return Folder(parent), name


class _LocalFile:
    """A file on the local disk. Raises StorageFullError for that disk, apart from errors of the storage."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> Self:
        self._file = self._path.open("wb", buffering=0)
        return self

    def write(self, block: bytes) -> None:
        try:
            while block:
                block = block[self._file.write(block) :]
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise StorageFullError(self._path.parent, str(error)) from error
            raise

    def __exit__(self, *_: object) -> None:
        self._file.close()


def _verify(where: str, file: FileRef, size: int, sha256: str) -> None:
    if size != file.size:
        raise CheckpointDamagedError(where, f"it has {size:,} bytes instead of {file.size:,}")
    if sha256 != file.sha256:
        raise CheckpointDamagedError(where, "its SHA-256 differs from the recorded one")


def _open(url: str) -> tuple[Any, str]:
    import fsspec  # slow to import, and needed only for checkpoints

    try:
        filesystem, root = fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise CheckpointStorageError(url, f"{error}. For S3: pip install 'tidegate[s3]'") from error
    except ValueError as error:
        raise UsageError(f"{url!r} cannot be used as checkpoint storage: {error}") from error
    return filesystem, str(root).rstrip("/")


def _protocols(filesystem: Any) -> tuple[str, ...]:
    protocol = filesystem.protocol
    return (protocol,) if isinstance(protocol, str) else tuple(protocol)
