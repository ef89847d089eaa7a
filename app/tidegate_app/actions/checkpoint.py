"""`tidegate checkpoint`: lists the checkpoints in the storage, and triggers one."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from tidegate.checkpoints.storage.checkpoint_storage import CheckpointStorage
from tidegate.checkpoints.storage.manifest import Manifest
from tidegate.client.log_access import LogAccess
from tidegate.directories import checkpoint_url
from tidegate.errors import CheckpointError
from tidegate.host.app_definition import AppDefinition
from tidegate.owner_rpc.protocol import TakeCheckpoint

__all__ = ("SHOWN", "completion_text", "list_checkpoints", "row", "storage_of", "summary", "take_checkpoint")

SHOWN = ("checkpoint", "complete since", "tasks", "size", "uploaded", "in flight", "took")


def storage_of(definition: AppDefinition, flags: Mapping[str, Any]) -> CheckpointStorage:
    """The storage of an app's checkpoints and savepoints."""
    return CheckpointStorage(checkpoint_url(definition.id, definition.resolve(flags).settings), definition.id)


def list_checkpoints(definition: AppDefinition, flags: Mapping[str, Any]) -> tuple[str, list[dict[str, Any]]]:
    """The storage's URL, and a summary per checkpoint; one that cannot be read has an `error`."""
    storage = storage_of(definition, flags)
    return storage.url, [_summary(storage, epoch) for epoch in storage.checkpoints()]


def _summary(storage: CheckpointStorage, epoch: int) -> dict[str, Any]:
    try:
        return summary(storage.manifest(epoch))
    except CheckpointError as error:
        return {"epoch": epoch, "error": str(error)}


def summary(manifest: Manifest) -> dict[str, Any]:
    return {
        "epoch": manifest.epoch,
        "name": manifest.name,
        "run": manifest.run,
        "started_ms": manifest.started_ms,
        "completed_ms": manifest.completed_ms,
        "tasks": len(manifest.tasks),
        "bytes": manifest.size,
        "uploaded_bytes": manifest.uploaded,
        "in_flight": manifest.in_flight_records,
    }


async def take_checkpoint(
    definition: AppDefinition, flags: Mapping[str, Any], *, name: str | None = None, timeout: float | None = None
) -> dict[str, Any]:
    """Trigger a checkpoint or savepoint, and wait for it."""
    async with LogAccess(definition, flags).opened() as operations:
        taken = await operations.checkpoint(TakeCheckpoint(name=name, timeout=timeout))
    return summary(storage_of(definition, flags).manifest(name or taken.epoch))


def row(found: Mapping[str, Any]) -> tuple[str, ...]:
    if "error" in found:
        return str(found["epoch"]), found["error"], "", "", "", "", ""
    return (
        str(found["epoch"]),
        datetime.fromtimestamp(found["completed_ms"] / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S"),
        str(found["tasks"]),
        _megabytes(found["bytes"]),
        _megabytes(found["uploaded_bytes"]),
        f"{found['in_flight']:,}",
        f"{(found['completed_ms'] - found['started_ms']) / 1000:.1f} s",
    )


def completion_text(found: Mapping[str, Any]) -> str:
    what = f"Savepoint {found['name']}" if found["name"] else f"Checkpoint {found['epoch']}"
    took = (found["completed_ms"] - found["started_ms"]) / 1000
    return (
        f"{what} is complete after {took:.1f} s: {_megabytes(found['bytes'])} in {found['tasks']} tasks, "
        f"{_megabytes(found['uploaded_bytes'])} uploaded, {found['in_flight']:,} records in flight."
    )


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"
