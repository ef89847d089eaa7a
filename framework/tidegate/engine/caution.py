"""How a task goes on after a commit was refused for what is in it: too large, stamped too far ahead, not encodable.

A commit holds the work of many records, and whoever refuses it knows a record of the log at most, not the one whose
handler made it. So the task is opened again and takes its input in steps: one piece of work, one commit. The step that
is refused names the work at fault. Once more the task is opened again, and that work is not handled any more: the
service's error policy decides about it. When everything that was in the first refused commit is behind it, the task
goes on as always.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from tidegate.engine.inputs import Input
from tidegate.engine.work import Work
from tidegate.errors import DataError
from tidegate.logs.base import Batch, LogRecord, TopicPartition

__all__ = ("Blame", "Caution", "Steps")


@dataclass(frozen=True, kw_only=True)
class Blame:
    """The piece of work whose results cannot be committed."""

    error: DataError
    source: TopicPartition | None = None
    offset: int | None = None
    key: bytes = b""
    timer: str | None = None
    at: int = 0

    @classmethod
    def of(cls, work: Work, error: DataError) -> Blame:
        if work.timer is not None:
            return cls(error=error, key=work.key, timer=work.timer.name, at=work.timer.at)
        if work.input is None or work.record is None:
            return cls(error=error, key=work.key)
        return cls(error=error, source=work.input.source, offset=work.record.offset)

    def names(self, work: Work) -> bool:
        return self.same_work(Blame.of(work, self.error))

    def same_work(self, other: Blame) -> bool:
        return self._work == other._work

    @property
    def _work(self) -> tuple[object, ...]:
        return self.source, self.offset, self.key, self.timer, self.at


@dataclass(frozen=True, kw_only=True)
class Caution:
    """What a task that is opened again must know."""

    upto: Mapping[TopicPartition, int]
    """How far the refused commit had come."""
    watermark: int
    """What time it was then: timers may be at fault, too."""
    blamed: Blame | None = None


class Steps:
    """Holds what was read back, and gives it out one record at a time."""

    def __init__(self, caution: Caution) -> None:
        self.caution = caution
        self._held: deque[tuple[Input, LogRecord | None, int]] = deque()
        self.trial: Work | None = None
        """The record of the step that is under way, or was last."""

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, input_: Input, batch: Batch) -> None:
        records = input_.fresh(batch.records)
        self._held.extend((input_, record, record.offset + 1) for record in records[:-1])
        self._held.append((input_, records[-1] if records else None, batch.position))

    def next(self) -> tuple[Input, LogRecord | None, int]:
        """An input, its next record (None: there is a gap), and the position after it."""
        input_, record, position = self._held.popleft()
        self.trial = None if record is None else Work(record.key or b"", record.timestamp, False, input_, record, None)
        return input_, record, position

    def put_back(self, input_: Input, record: LogRecord, position: int) -> None:
        """What `next` has given is not taken up yet."""
        self._held.appendleft((input_, record, position))
        self.trial = None

    def blames(self, input_: Input, record: LogRecord) -> DataError | None:
        blamed = self.caution.blamed
        if blamed is not None and (blamed.source, blamed.offset) == (input_.source, record.offset):
            return blamed.error
        return None

    def over(self, inputs: Mapping[TopicPartition, Input], watermark: int) -> bool:
        """Everything that was in the refused commit is behind us, if nothing is left to be done at once."""
        if watermark < self.caution.watermark:
            return False
        return all(input_.handled >= self.caution.upto.get(source, 0) for source, input_ in inputs.items())

    def blame(self, latest: Work | None, error: DataError) -> Blame | None:
        """The work of the last step. None: it is the one that was blamed before, or there was none."""
        work = latest or self.trial
        if work is None:
            return None
        found = Blame.of(work, error)
        blamed = self.caution.blamed
        return None if blamed is not None and blamed.same_work(found) else found
