"""Checkpoints to test with."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Literal

from tidegate.checkpoints.storage.checkpoint_storage import CheckpointStorage, digest_of
from tidegate.checkpoints.storage.in_flight_format import InFlightRecord, encode_in_flight
from tidegate.checkpoints.storage.manifest import FileRef, Manifest, TaskSnapshot
from tidegate.engine.formats.commit_marker import CommitMarker, InputMark
from tidegate.state.base import StorePosition
from tidegate.state.memory import MemoryStore
from tidegate.state.rocksdb import RocksStore
from tidegate.state.write_buffer import WriteBuffer

__all__ = ("make_checkpoint", "make_manifest", "put_task")

Kind = Literal["rocksdb", "memory"]


def make_manifest(epoch: int, tasks: list[TaskSnapshot], name: str | None = None) -> Manifest:
    return Manifest(
        app="shop", run="1", epoch=epoch, name=name, started_ms=1, completed_ms=2, partitions={"orders": 1},
        outside=["orders"], parallelism={"count": 1}, tasks=tasks,
    )  # fmt: skip


def put_task(
    storage: CheckpointStorage,
    directory: Path,
    epoch: int,
    entries: dict[bytes, bytes],
    *,
    kind: Kind = "rocksdb",
    name: str | None = None,
    in_flight: list[InFlightRecord] | None = None,
) -> TaskSnapshot:
    """Fill a store, take its snapshot, upload it."""
    below = RocksStore(directory / f"{epoch}-store") if kind == "rocksdb" else None
    store = MemoryStore() if below is None else WriteBuffer(below)
    store.apply(list(entries.items()), StorePosition("line", 10 * epoch, 1_000))
    store.hold()
    taken = directory / f"{epoch}-taken"
    store.snapshot(taken)
    store.close()
    folder, base = CheckpointStorage.folder_of(epoch, name), "files/count.0"
    files = []
    for path in sorted(taken.iterdir()):
        storage.upload(path, f"{folder}/{base}/{path.name}")
        size, digest = path.stat().st_size, digest_of(path)
        files.append(FileRef(name=path.name, path=f"{base}/{path.name}", size=size, sha256=digest))
    marker = CommitMarker(lineage="line", run="1", inputs={"orders:0": InputMark(position=7)})
    return TaskSnapshot(
        service="count", number=0, marker=marker,
        lineage="line", offset=10 * epoch, written_ms=1_000, store=kind, files=files,
        in_flight=_put_in_flight(storage, folder, in_flight or []), in_flight_records=len(in_flight or []),
    )  # fmt: skip


def _put_in_flight(storage: CheckpointStorage, folder: str, records: list[InFlightRecord]) -> FileRef | None:
    if not records:
        return None
    raw = encode_in_flight(records)
    path = f"{folder}/in-flight/count.0"
    storage.put(path, raw)
    return FileRef(name="count.0", path="in-flight/count.0", size=len(raw), sha256=hashlib.sha256(raw).hexdigest())


def make_checkpoint(
    storage: CheckpointStorage, directory: Path, epoch: int, entries: dict[bytes, bytes], *, name: str | None = None
) -> Manifest:
    manifest = make_manifest(epoch, [put_task(storage, directory, epoch, entries, name=name)], name)
    storage.put_manifest(manifest)
    return manifest
