"""What all tasks of a worker share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field

from tidegate.engine.runtime.commit_listeners import CommitListeners
from tidegate.engine.runtime.loop_scheduler import LoopScheduler
from tidegate.engine.runtime.metrics import Metrics
from tidegate.engine.runtime.retention_check import RetentionCheck
from tidegate.engine.runtime.snapshots import Snapshots
from tidegate.engine.runtime.state_directory import StateDirectory
from tidegate.logs.base import Log
from tidegate.settings import Settings
from tidegate.time.clock import Clock

__all__ = ("Environment",)


@dataclass(frozen=True, kw_only=True)
class Environment:
    app: str
    run: str
    """Which life of the app this is; a restore starts another."""
    confirm_run: Callable[[], Awaitable[None]]
    """Raises RunOverError if another one has begun."""
    log: Log
    stores: StateDirectory
    snapshots: Snapshots
    settings: Settings
    clock: Clock
    metrics: Metrics
    wake: Callable[[], None]
    """Something has happened that the engine must look at."""
    cache_limit: int
    """How many decoded values each state of each task may keep."""
    commits: CommitListeners = field(default_factory=CommitListeners)
    """Who wants to know of commits."""
    readers: Executor | None = None
    """The thread in which state is read ahead; None: it is not."""
    turns: LoopScheduler = field(default_factory=LoopScheduler)
    """Of the event loop: slices and commits take one each."""
    ages: RetentionCheck = field(default_factory=RetentionCheck)
    """Of what is emitted."""
