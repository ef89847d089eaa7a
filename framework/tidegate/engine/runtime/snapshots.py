"""The engine's contract with checkpoints: take the snapshot of a task, fetch one to start from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tidegate.engine.formats.commit_marker import CommitMarker
from tidegate.engine.topology.plan import TaskPlan
from tidegate.logs.base import LogRecord, TopicPartition
from tidegate.state.base import SnapshotStore, StorePosition

__all__ = ("Cut", "NoSnapshots", "Snapshots")


@dataclass(frozen=True, kw_only=True)
class Cut:
    """A task at the commit that moved it to an epoch. Its store is held as of that commit."""

    plan: TaskPlan
    epoch: int
    marker: CommitMarker
    position: StorePosition
    sent: dict[TopicPartition, int]
    store: SnapshotStore


class Snapshots(Protocol):
    def needed(self, epoch: int) -> bool:
        """Whether the checkpoint of this epoch can still use a snapshot."""

    async def take(self, cut: Cut) -> None:
        """Write, upload and report the snapshot, or report the failure; then release the store. Raises only
        CancelledError."""

    async def report_failure(self, plan: TaskPlan, epoch: int, reason: str) -> None:
        """Report that the task has no snapshot for this epoch. Never raises."""

    async def fetch(self, plan: TaskPlan, lineage: str, start: int, end: int, oldest_ms: int, directory: Path) -> bool:
        """Download a task's newest usable snapshot into a new directory. Usable: of the changelog's lineage, at a
        position from `start` to `end`, written at `oldest_ms` or later. False: there is none, and no directory. Never
        raises."""

    def on_control_record(self, record: LogRecord) -> None:
        """Called for each record of the control topic."""

    def reset(self) -> None:
        """The control topic is read from its start again, and may be that of another run."""

    async def run(self) -> None:
        """Runs in the background until it is cancelled."""

    async def finish_bounded_run(self) -> None:
        """Does the periodic work a last time. Never raises."""


class NoSnapshots:
    """An engine without checkpoints, for tests of its other parts."""

    def needed(self, epoch: int) -> bool:
        return False

    async def take(self, cut: Cut) -> None:
        cut.store.release()

    async def report_failure(self, plan: TaskPlan, epoch: int, reason: str) -> None: ...

    async def fetch(self, plan: TaskPlan, lineage: str, start: int, end: int, oldest_ms: int, directory: Path) -> bool:
        return False

    def on_control_record(self, record: LogRecord) -> None: ...

    def reset(self) -> None: ...

    async def run(self) -> None: ...

    async def finish_bounded_run(self) -> None: ...
