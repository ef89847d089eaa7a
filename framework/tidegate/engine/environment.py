"""What all tasks of a worker share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field

from tidegate.engine.ages import Ages
from tidegate.engine.commits import Commits
from tidegate.engine.metrics import Metrics
from tidegate.engine.snapshots import Snapshots
from tidegate.engine.stores import Stores
from tidegate.engine.turns import Turns
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
    stores: Stores
    snapshots: Snapshots
    settings: Settings
    clock: Clock
    metrics: Metrics
    wake: Callable[[], None]
    """Something has happened that the engine must look at."""
    cache_limit: int
    """How many decoded values each state of each task may keep."""
    commits: Commits = field(default_factory=Commits)
    """Who wants to know of commits."""
    readers: Executor | None = None
    """The thread in which state is read ahead; None: it is not."""
    turns: Turns = field(default_factory=Turns)
    """Of the event loop: slices and commits take one each."""
    ages: Ages = field(default_factory=Ages)
    """Of what is emitted."""
