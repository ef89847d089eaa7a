"""Notices inputs that stand still: there is more in the log, there is room for it, and nothing comes.

That never happens, unless a connection, a broker or a client hangs without saying so. Then the service is read for
anew, with a reader of its own making; if that does not help, the task is opened again, which asks the log for all that
it goes by.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidegate.engine.task import Task
from tidegate.logs.base import TopicPartition

__all__ = ("Stall", "StallDetector")


@dataclass(kw_only=True)
class _Watched:
    position: int
    since: float
    """When the position was first seen."""
    healed: int = 0


@dataclass(frozen=True, kw_only=True)
class Stall:
    task: Task
    source: TopicPartition
    position: int
    end: int
    seconds: float
    times: int
    """How often something was done about it already."""


class StallDetector:
    def __init__(self, patience: float) -> None:
        """`patience`: seconds for which an input may stand still."""
        self._patience = patience
        self._watched: dict[tuple[str, TopicPartition], _Watched] = {}
        """By task: several services may read the same, each from where it is."""

    def __bool__(self) -> bool:
        return any(watched.healed for watched in self._watched.values())

    def stalled(self, task: Task) -> bool:
        seen = (self._watched.get((task.plan.id, source)) for source in task.inputs)
        return any(watched is not None and watched.healed for watched in seen)

    def look(self, task: Task, ends: Mapping[TopicPartition, int], monotonic: float) -> list[Stall]:
        """Those of the task's inputs that something must be done about now."""
        waiting = task.full or task.ahead > 0
        found = []
        for source, input_ in task.inputs.items():
            position, end = input_.position, ends.get(source, 0)
            watched = self._watched.get((task.plan.id, source))
            if waiting or position >= end or watched is None or watched.position != position:
                self._watched[task.plan.id, source] = _Watched(position=position, since=monotonic)
            elif monotonic - watched.since >= self._patience:
                seconds = self._patience * (watched.healed + 1)
                found.append(
                    Stall(task=task, source=source, position=position, end=end, seconds=seconds, times=watched.healed)
                )
                watched.healed += 1
                watched.since = monotonic
        return found

    def forget(self, task: Task) -> None:
        for source in task.inputs:
            self._watched.pop((task.plan.id, source), None)
