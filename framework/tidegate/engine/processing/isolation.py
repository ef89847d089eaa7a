"""How a task continues after a commit was refused for its content: too large, stamped too far ahead, not encodable.

A commit holds the results of many records, and the log that refuses it names a record of the log at most, not the
record whose handler made it. So the task is reopened and takes its input in steps (`IsolationSteps`): one work item,
one commit. The step that is refused names the work at fault. Reopened once more, the task does not handle that work
again: the service's error policy decides about it. When everything that was in the first refused commit is committed,
the task continues normally.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidegate.engine.processing.work_item import WorkItem
from tidegate.errors import DataError
from tidegate.logs.base import TopicPartition

__all__ = ("Blame", "Isolation")


@dataclass(frozen=True, kw_only=True)
class Blame:
    """The work item whose results cannot be committed."""

    error: DataError
    source: TopicPartition | None = None
    offset: int | None = None
    key: bytes = b""
    timer: str | None = None
    at: int = 0

    @classmethod
    def of(cls, work: WorkItem, error: DataError) -> Blame:
        if work.timer is not None:
            return cls(error=error, key=work.key, timer=work.timer.name, at=work.timer.at)
        if work.input is None or work.record is None:
            return cls(error=error, key=work.key)
        return cls(error=error, source=work.input.source, offset=work.record.offset)

    def names(self, work: WorkItem) -> bool:
        return self.same_work(Blame.of(work, self.error))

    def same_work(self, other: Blame) -> bool:
        return self._work == other._work

    @property
    def _work(self) -> tuple[object, ...]:
        return self.source, self.offset, self.key, self.timer, self.at


@dataclass(frozen=True, kw_only=True)
class Isolation:
    """What the task must know when it is reopened."""

    upto: Mapping[TopicPartition, int]
    """The positions of the refused commit."""
    watermark: int
    """The watermark of that commit: timers may be at fault, too."""
    blamed: Blame | None = None
