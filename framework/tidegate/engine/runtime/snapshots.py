"""What the engine needs of checkpoints: somebody who takes a task's snapshot, and who finds one to start from."""

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
    """A task at the commit with which it has entered an epoch. Its store is held as of that commit."""

    plan: TaskPlan
    epoch: int
    marker: CommitMarker
    position: StorePosition
    sent: dict[TopicPartition, int]
    store: SnapshotStore


class Snapshots(Protocol):
    def wanted(self, epoch: int) -> bool:
        """Whether a snapshot of this epoch may still be of use."""

    async def take(self, cut: Cut) -> None:
        """Write it, upload it, report it; or report why not. In the end the store is not held any more. Never raises,
        unless it is cancelled."""

    async def give_up(self, plan: TaskPlan, epoch: int, reason: str) -> None:
        """Report that there will be none. Never raises."""

    async def fetch(self, plan: TaskPlan, lineage: str, start: int, end: int, oldest_ms: int, directory: Path) -> bool:
        """Bring the newest snapshot of a task that fits its changelog (of this lineage, from `start` to `end`), and is
        no older, into a new directory. False: there is none; then the directory is not there. Never raises."""

    def hear(self, record: LogRecord) -> None:
        """What the control topic says."""

    def forget(self) -> None:
        """The control topic is read anew, and may be another one."""

    async def run(self) -> None:
        """Beside the tasks, for as long as they run."""

    async def conclude(self) -> None:
        """A bounded run is over: do what is done now and then otherwise. Never raises."""


class NoSnapshots:
    """An engine without checkpoints: tests of its other parts."""

    def wanted(self, epoch: int) -> bool:
        return False

    async def take(self, cut: Cut) -> None:
        cut.store.release()

    async def give_up(self, plan: TaskPlan, epoch: int, reason: str) -> None: ...

    async def fetch(self, plan: TaskPlan, lineage: str, start: int, end: int, oldest_ms: int, directory: Path) -> bool:
        return False

    def hear(self, record: LogRecord) -> None: ...

    def forget(self) -> None: ...

    async def run(self) -> None: ...

    async def conclude(self) -> None: ...
