"""The services and settings that all tasks of a worker share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field

from tidegate.engine.runtime.commit_listeners import CommitListeners
from tidegate.engine.runtime.handler_threads import ThreadPools
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
    """The id of the app's run; a restore starts another."""
    confirm_run: Callable[[], Awaitable[None]]
    """Raises RunOverError if a newer run has started."""
    log: Log
    stores: StateDirectory
    snapshots: Snapshots
    settings: Settings
    clock: Clock
    metrics: Metrics
    wake: Callable[[], None]
    """Wakes the engine's work loop."""
    cache_limit: int
    """Decoded values that each state of each task may keep in memory."""
    commit_listeners: CommitListeners = field(default_factory=CommitListeners)
    prefetch_executor: Executor | None = None
    """The thread that prefetches state; None: no prefetching."""
    loop_scheduler: LoopScheduler = field(default_factory=LoopScheduler)
    retention_check: RetentionCheck = field(default_factory=RetentionCheck)
    thread_pools: ThreadPools = field(default_factory=ThreadPools)
    """Of services whose handlers run in threads."""
