"""Finds the snapshot from which a task without local state starts, so that only the changelog's tail is replayed."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidegate.checkpoints.storage.checkpoint_storage import CheckpointStorage
from tidegate.checkpoints.storage.manifest import Manifest, TaskSnapshot
from tidegate.checkpoints.storage.reader import CheckpointReader
from tidegate.engine.topology.plan import TaskPlan
from tidegate.errors import CheckpointError

__all__ = ("ManifestCache", "SnapshotCriteria", "fetch_snapshot")

logger = logging.getLogger(__name__)

_CACHED: Final = 16


class ManifestCache:
    """All tasks of a worker look for the same manifests at the same time."""

    def __init__(self, storage: CheckpointStorage) -> None:
        self.storage = storage
        self._read: dict[int, Manifest] = {}

    def get(self, epoch: int) -> Manifest:
        if epoch not in self._read:
            if len(self._read) >= _CACHED:
                self._read.clear()
            self._read[epoch] = self.storage.manifest(epoch)
        return self._read[epoch]


@dataclass(frozen=True, kw_only=True)
class SnapshotCriteria:
    """A usable snapshot: of the task's kind of store and lineage, at a position that the changelog still has, and
    written late enough that no tombstone since is missing from the changelog."""

    store: str
    lineage: str
    start: int
    end: int
    oldest_ms: int

    def match(self, task: TaskSnapshot) -> bool:
        if (task.store, task.lineage) != (self.store, self.lineage):
            return False
        return self.start <= task.offset <= self.end and task.written_ms >= self.oldest_ms


def fetch_snapshot(
    manifests: ManifestCache, plan: TaskPlan, criteria: SnapshotCriteria, directory: Path
) -> TaskSnapshot | None:
    """Download the newest usable snapshot into the directory; None: there is none. Damaged checkpoints are skipped."""
    storage = manifests.storage
    for epoch in storage.checkpoints():
        try:
            manifest = manifests.get(epoch)
            task = manifest.task(plan.definition.name, plan.number)
            if task is None or manifest.run != plan.run.id or not criteria.match(task):
                continue
            CheckpointReader(storage, storage.folder_of(epoch), manifest).download(task, directory)
        except CheckpointError as error:
            logger.warning("%s: checkpoint %d is skipped: %s", plan.id, epoch, error)
        else:
            return task
    return None
