"""Writes a savepoint of state that no run has ever held: what other programs have computed from history.

1. For each task of a service, a store of its entries in the order of their places, uploaded file by file. Tasks are
   independent of each other, and may be written anywhere.
2. The manifest, last and in one put: then the savepoint is complete.

It has no positions: whoever restores it says where each topic is to be read from.
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
"""A place in a store, and what is stored there."""

_PORTION: Final = 10_000
_RUN: Final = "1"


def entry_writer(declaration: StateDeclaration) -> Callable[[bytes, bytes, bytes, int | None], Entry]:
    """From the bytes of a key, of a subkey (a map's own key, a list's index), a value, and when it expires."""
    prefix, ttl = keyed_prefix(declaration.name), declaration.ttl is not None

    def place(key: bytes, sub: bytes, value: bytes, expires: int | None) -> Entry:
        return keyed_key(prefix, key) + sub, EXPIRY.pack(expires) + value if ttl and expires is not None else value

    return place


def schemas_of(service: ServiceDefinition) -> dict[str, bytes]:
    return {name: encode_schema(schema_of(declaration)) for name, declaration in service.states.items()}


def write_task(
    uri: str, service: str, number: int, entries: Iterable[Entry], schemas: Mapping[str, bytes], now: int
) -> TaskSnapshot:
    """Store and upload one task. Entries come in the order of their places, each once."""
    lineage = uuid.uuid4().hex
    directory = Path(tempfile.mkdtemp(prefix="tidegate-authoring-"))
    try:
        store = RocksStore(directory / "store")
        position = StorePosition(lineage, 0, now)
        store.apply([(SCHEMA + name.encode(), raw) for name, raw in schemas.items()], position)
        for portion in _portions(_checked(entries, service)):
            store.apply(portion, position)
        store.flush()
        store.snapshot(directory / "taken")
        store.close()
        files = _upload(uri, directory / "taken", f"files/{service}.{number}")
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    marker = CommitMarker(lineage=lineage, run=_RUN, inputs={})
    return TaskSnapshot(
        service=service, number=number, marker=marker, lineage=lineage, offset=0, written_ms=now, store="rocksdb",
        files=files,
    )  # fmt: skip


def _checked(entries: Iterable[Entry], service: str) -> Iterator[Change]:
    last = None
    for place, value in entries:
        if place == last:
            raise UsageError(f"the state of {service} has two values for one place: {place!r}. Make keys unique first.")
        last = place
        yield place, value


def _portions(changes: Iterator[Change]) -> Iterator[list[Change]]:
    while portion := list(islice(changes, _PORTION)):
        yield portion


def _upload(uri: str, taken: Path, base: str) -> list[FileRef]:
    folder, name = locate(uri)
    files = []
    for path in sorted(taken.iterdir()):
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
