"""Finds the snapshot from which a task without local state can start, so that only the changelog's tail is replayed."""

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

__all__ = ("Fit", "Manifests", "fetch")

logger = logging.getLogger(__name__)

_KEPT: Final = 16


class Manifests:
    """Those that were read: all tasks of a worker look for the same ones at the same time."""

    def __init__(self, storage: CheckpointStorage) -> None:
        self.storage = storage
        self._read: dict[int, Manifest] = {}

    def get(self, epoch: int) -> Manifest:
        if epoch not in self._read:
            if len(self._read) >= _KEPT:
                self._read.clear()
            self._read[epoch] = self.storage.manifest(epoch)
        return self._read[epoch]


@dataclass(frozen=True, kw_only=True)
class Fit:
    """What a snapshot must be to be of use to a task."""

    store: str
    lineage: str
    start: int
    end: int
    oldest_ms: int

    def __call__(self, task: TaskSnapshot) -> bool:
        if (task.store, task.lineage) != (self.store, self.lineage):
            return False
        return self.start <= task.offset <= self.end and task.written_ms >= self.oldest_ms


def fetch(manifests: Manifests, plan: TaskPlan, fits: Fit, directory: Path) -> TaskSnapshot | None:
    """The newest one that fits, in the directory; None: there is none. One that is damaged is passed over.

    It fits if it is of the changelog's lineage and of a position that the changelog still has. If it is too old, the
    removal of keys may be missing from the changelog since."""
    storage = manifests.storage
    for epoch in storage.checkpoints():
        try:
            manifest = manifests.get(epoch)
            task = manifest.task(plan.definition.name, plan.number)
            if task is None or manifest.run != plan.run.id or not fits(task):
                continue
            CheckpointReader(storage, storage.folder_of(epoch), manifest).download(task, directory)
        except CheckpointError as error:
            logger.warning("%s: checkpoint %d is passed over: %s", plan.id, epoch, error)
        else:
            return task
    return None
