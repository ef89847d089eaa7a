"""The manifest of a checkpoint: a format that later versions must still read.

A checkpoint is a folder with a `manifest.json` and files. Paths in a manifest are relative to its folder, with `/`.
Those of a checkpoint may point into the folders of older checkpoints, whose files it shares; those of a savepoint stay
in its own folder, so that it can be copied as it is.

    {"format": 1, "sha256": "…of the manifest's bytes…", "manifest": {…}}

A checkpoint without a manifest is incomplete.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final, Literal, TypeVar

import msgspec
from msgspec import Struct

from tidegate.engine.formats.commit_marker import CommitMarker
from tidegate.errors import CheckpointDamagedError, CheckpointError
from tidegate.keys import KEY_GROUPS
from tidegate.state.base import StorePosition

__all__ = (
    "FORMAT",
    "FileRef",
    "Manifest",
    "TaskSnapshot",
    "decode_manifest",
    "decode_task",
    "encode_manifest",
    "encode_task",
)

T = TypeVar("T")

FORMAT: Final = 1


class FileRef(Struct, frozen=True, kw_only=True):
    """A file of a checkpoint, with size and digest to verify it."""

    name: str
    """Its name in the store's directory."""
    path: str
    """Relative to the manifest's folder."""
    size: int
    sha256: str


class TaskSnapshot(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One task at the cut: its state, its positions, and its in-flight records."""

    service: str
    number: int
    marker: CommitMarker
    """The marker of the snapshot's commit: positions, unfinished offsets, watermarks, epoch, run, lineage."""
    lineage: str
    offset: int
    """The changelog position from which a recovery on top of this snapshot replays."""
    written_ms: int
    """The time of the snapshot's commit."""
    store: Literal["rocksdb", "memory"]
    files: list[FileRef]
    """The files of the store."""
    sent: dict[str, int] = {}
    """By output `topic:partition`, the position after the last record that it had sent before the cut."""
    in_flight: FileRef | None = None
    """The records that were sent to the task before the cut and not processed before it. None: there were none."""
    in_flight_records: int = 0

    @property
    def task(self) -> str:
        return f"{self.service}.{self.number}"

    @property
    def position(self) -> StorePosition:
        return StorePosition(self.lineage, self.offset, self.written_ms)

    @property
    def size(self) -> int:
        """Bytes, including shared files."""
        return sum(file.size for file in self.every_file)

    @property
    def every_file(self) -> list[FileRef]:
        return [*self.files, *((self.in_flight,) if self.in_flight is not None else ())]


class Manifest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A complete checkpoint or savepoint."""

    app: str
    run: str
    epoch: int
    name: str | None = None
    """The name of a savepoint; None: a checkpoint."""
    started_ms: int
    completed_ms: int
    key_groups: int = KEY_GROUPS
    partitions: dict[str, int]
    """Partition counts of the app's topics."""
    outside: list[str]
    """The input topics that no service of the app writes: for these, positions are enough."""
    internal: list[str] = []
    """The topics that belong to the run: no other program reads them."""
    parallelism: dict[str, int]
    """The number of tasks by service, shuffles included."""
    schemas: dict[str, dict[str, dict[str, Any]]] = {}
    """By service and state: kind, types, version."""
    request: str = ""
    """The id of the request that triggered it; empty: the interval did."""
    uploaded: int = 0
    """Bytes uploaded for it, without files that it shares."""
    tasks: list[TaskSnapshot]

    @property
    def id(self) -> str:
        """The name of a savepoint, the epoch of a checkpoint."""
        return self.name if self.name is not None else str(self.epoch)

    @property
    def size(self) -> int:
        return sum(task.size for task in self.tasks)

    @property
    def in_flight_records(self) -> int:
        return sum(task.in_flight_records for task in self.tasks)

    @property
    def paths(self) -> set[str]:
        return {file.path for task in self.tasks for file in task.every_file}

    def task(self, service: str, number: int) -> TaskSnapshot | None:
        return next((task for task in self.tasks if (task.service, task.number) == (service, number)), None)


class _Envelope(Struct):
    format: int
    sha256: str
    manifest: msgspec.Raw


_encoder = msgspec.json.Encoder(order="deterministic")
_envelopes = msgspec.json.Decoder(_Envelope)
_manifests = msgspec.json.Decoder(Manifest)
_tasks = msgspec.json.Decoder(TaskSnapshot)


def encode_manifest(manifest: Manifest) -> bytes:
    return _enclose(_encoder.encode(manifest))


def decode_manifest(raw: bytes, where: str) -> Manifest:
    """CheckpointDamagedError: it differs from what was written. CheckpointError: a later version wrote it."""
    return _decode(_manifests, _contents(raw, where), where)


def encode_task(snapshot: TaskSnapshot) -> bytes:
    """The description of a task's snapshot that the leader reads when the task has reported."""
    return _enclose(_encoder.encode(snapshot))


def decode_task(raw: bytes, where: str) -> TaskSnapshot:
    return _decode(_tasks, _contents(raw, where), where)


def _enclose(contents: bytes) -> bytes:
    digest = hashlib.sha256(contents).hexdigest()
    return _encoder.encode(_Envelope(FORMAT, digest, msgspec.Raw(contents)))


def _contents(raw: bytes, where: str) -> bytes:
    envelope = _decode(_envelopes, raw, where)
    if envelope.format > FORMAT:
        raise CheckpointError(
            f"{where}: a newer version of Tidegate wrote this checkpoint (format {envelope.format}; this version reads "
            f"up to {FORMAT}). Upgrade, or choose another checkpoint."
        )
    contents = bytes(envelope.manifest)
    if hashlib.sha256(contents).hexdigest() != envelope.sha256:
        raise CheckpointDamagedError(where, "its SHA-256 differs from the recorded one")
    return contents


def _decode(decoder: msgspec.json.Decoder[T], raw: bytes, where: str) -> T:
    try:
        return decoder.decode(raw)
    except msgspec.MsgspecError as error:
        raise CheckpointDamagedError(where, f"it cannot be read: {error}") from error
