"""Detects stalled inputs: the log has more records, the task is not full, and no records arrive.

This happens only if a connection, a broker or a client hangs without an error. The first recovery replaces the
service's reader; the second one reopens the task, which reads everything it depends on from the log.
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
    attempts: int = 0
    """Recoveries so far."""


@dataclass(frozen=True, kw_only=True)
class Stall:
    task: Task
    source: TopicPartition
    position: int
    end: int
    seconds: float
    attempts: int
    """Recoveries so far."""


class StallDetector:
    def __init__(self, seconds: float) -> None:
        """`seconds`: how long an input may make no progress."""
        self._seconds = seconds
        self._watched: dict[tuple[str, TopicPartition], _Watched] = {}
        """By task and partition: several services may read the same partition."""

    def __bool__(self) -> bool:
        return any(watched.attempts for watched in self._watched.values())

    def stalled(self, task: Task) -> bool:
        seen = (self._watched.get((task.plan.id, source)) for source in task.inputs)
        return any(watched is not None and watched.attempts for watched in seen)

    def check(self, task: Task, ends: Mapping[TopicPartition, int], monotonic: float) -> list[Stall]:
        """The task's inputs that must be recovered now."""
        waiting = task.full or task.ahead > 0
        found = []
        for source, input_ in task.inputs.items():
            position, end = input_.position, ends.get(source, 0)
            watched = self._watched.get((task.plan.id, source))
            if waiting or position >= end or watched is None or watched.position != position:
                self._watched[task.plan.id, source] = _Watched(position=position, since=monotonic)
            elif monotonic - watched.since >= self._seconds:
                seconds, attempts = self._seconds * (watched.attempts + 1), watched.attempts
                found.append(
                    Stall(task=task, source=source, position=position, end=end, seconds=seconds, attempts=attempts)
                )
                watched.attempts += 1
                watched.since = monotonic
        return found

    def remove(self, task: Task) -> None:
        for source in task.inputs:
            self._watched.pop((task.plan.id, source), None)
