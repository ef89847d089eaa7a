"""Writes a savepoint of state that another program has computed, for example from historical data (bootstrapping).

1. For each task of a service, write a store of its entries in the order of their store keys, and upload its files.
   Tasks are independent of each other, and can be written in different processes.
2. Put the manifest, last and atomically: then the savepoint is complete.

The savepoint has no positions: a restore needs a start for each topic.
"""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Final

from tidegate.checkpoints.storage.checkpoint_storage import MANIFEST, digest_of, locate
from tidegate.checkpoints.storage.description import describe_states
from tidegate.checkpoints.storage.manifest import FileRef, Manifest, TaskSnapshot, encode_manifest
from tidegate.engine.formats.commit_marker import CommitMarker
from tidegate.errors import UsageError
from tidegate.functions.definition import ServiceDefinition
from tidegate.state.base import Change, StorePosition
from tidegate.state.declaration import StateDeclaration
from tidegate.state.layout import EXPIRY, SCHEMA, keyed_key, keyed_prefix
from tidegate.state.rocksdb import RocksStore
from tidegate.state.schema import encode_schema, schema_of

__all__ = ("entry_writer", "schemas_of", "write_manifest", "write_task")

Entry = tuple[bytes, bytes]
"""A store key and its value."""

_BATCH: Final = 10_000
_RUN: Final = "1"


def entry_writer(declaration: StateDeclaration) -> Callable[[bytes, bytes, bytes, int | None], Entry]:
    """Returns a function from key, subkey (a map's key, a list's index), value and time of expiry to an entry."""
    prefix, ttl = keyed_prefix(declaration.name), declaration.ttl is not None

    def to_entry(key: bytes, sub: bytes, value: bytes, expires: int | None) -> Entry:
        return keyed_key(prefix, key) + sub, EXPIRY.pack(expires) + value if ttl and expires is not None else value

    return to_entry


def schemas_of(service: ServiceDefinition) -> dict[str, bytes]:
    return {name: encode_schema(schema_of(declaration)) for name, declaration in service.states.items()}


def write_task(
    uri: str, service: str, number: int, entries: Iterable[Entry], schemas: Mapping[str, bytes], now: int
) -> TaskSnapshot:
    """Write and upload one task. Entries are in the order of their store keys, each key once."""
    lineage = uuid.uuid4().hex
    directory = Path(tempfile.mkdtemp(prefix="tidegate-authoring-"))
    try:
        store = RocksStore(directory / "store")
        position = StorePosition(lineage, 0, now)
        store.apply([(SCHEMA + name.encode(), raw) for name, raw in schemas.items()], position)
        for batch in _batches(_checked(entries, service)):
            store.apply(batch, position)
        store.flush()
        store.snapshot(directory / "snapshot")
        store.close()
        files = _upload(uri, directory / "snapshot", f"files/{service}.{number}")
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    marker = CommitMarker(lineage=lineage, run=_RUN, inputs={})
    return TaskSnapshot(
        service=service, number=number, marker=marker, lineage=lineage, offset=0, written_ms=now, store="rocksdb",
        files=files,
    )  # fmt: skip


def _checked(entries: Iterable[Entry], service: str) -> Iterator[Change]:
    last = None
    for store_key, value in entries:
        if store_key == last:
            raise UsageError(
                f"the state of {service} has two values for one key: {store_key!r}. Deduplicate the keys first."
            )
        last = store_key
        yield store_key, value


def _batches(changes: Iterator[Change]) -> Iterator[list[Change]]:
    while batch := list(islice(changes, _BATCH)):
        yield batch


def _upload(uri: str, snapshot: Path, base: str) -> list[FileRef]:
    folder, name = locate(uri)
    files = []
    for path in sorted(snapshot.iterdir()):
        folder.upload(path, f"{name}/{base}/{path.name}")
        size, digest = path.stat().st_size, digest_of(path)
        files.append(FileRef(name=path.name, path=f"{base}/{path.name}", size=size, sha256=digest))
    return files


def write_manifest(
    uri: str,
    app: str,
    services: Iterable[ServiceDefinition],
    tasks: Iterable[TaskSnapshot],
    *,
    partitions: Mapping[str, int],
    outside: Iterable[str],
    now: int,
) -> Manifest:
    folder, name = locate(uri)
    known = list(services)
    manifest = Manifest(
        app=app,
        run=_RUN,
        epoch=0,
        name=name,
        started_ms=now,
        completed_ms=now,
        partitions=dict(partitions),
        outside=sorted(outside),
        parallelism={service.name: service.tasks for service in known},
        schemas={service.name: describe_states(service) for service in known},
        tasks=sorted(tasks, key=lambda task: (task.service, task.number)),
    )
    folder.put(f"{name}/{MANIFEST}", encode_manifest(manifest))
    return manifest
