"""How a task continues after a commit was refused for its content: too large, stamped too far ahead, not encodable.

A commit holds the results of many records. The log that refuses it names an output record at most, not the input
record whose handler emitted it. So the task is reopened and handles its input in steps (`IsolationSteps`): one work
item per commit. The refused step identifies the failed work item. The task is reopened once more and does not handle
that item again: the service's error policy decides about it. When everything in the first refused commit is committed,
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
    """The state of the isolation that a reopened task continues from."""

    upto: Mapping[TopicPartition, int]
    """The positions of the refused commit."""
    watermark: int
    """The watermark of the refused commit: a timer may have caused the refusal, too."""
    blamed: Blame | None = None
