"""Isolation steps: after a refused commit, a task handles one work item per commit. See `Isolation`."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tidegate.engine.commit.epoch_alignment import EpochAlignment
from tidegate.engine.processing.dispatcher import Dispatcher
from tidegate.engine.processing.input import Input
from tidegate.engine.processing.invocation import Invoker
from tidegate.engine.processing.isolation import Blame, Isolation
from tidegate.engine.processing.work_item import WorkItem
from tidegate.errors import DataError
from tidegate.logs.base import Batch, LogRecord, TopicPartition
from tidegate.time.combined_watermark import CombinedWatermark

__all__ = ("IsolationSteps",)


class IsolationSteps:
    """Buffers records that were read, and lets the dispatcher handle one at a time."""

    def __init__(
        self,
        isolation: Isolation,
        inputs: Mapping[TopicPartition, Input],
        time: CombinedWatermark,
        invoker: Invoker,
        dispatcher: Dispatcher,
        epochs: EpochAlignment,
    ) -> None:
        self._isolation, self._inputs, self._time = isolation, inputs, time
        self._invoker, self._dispatcher, self._epochs = invoker, dispatcher, epochs
        self._pending: deque[tuple[Input, LogRecord | None, int]] = deque()
        self._trial: WorkItem | None = None
        """The record of the current step, or of the last one."""
        invoker.blamed = isolation.blamed

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, input_: Input, batch: Batch) -> None:
        records = input_.fresh(batch.records)
        self._pending.extend((input_, record, record.offset + 1) for record in records[:-1])
        self._pending.append((input_, records[-1] if records else None, batch.position))

    @property
    def over(self) -> bool:
        """Everything that was in the refused commit is committed, and no other work can run."""
        if self._dispatcher.ready or self._time.watermark < self._isolation.watermark:
            return False
        return all(input_.handled >= self._isolation.upto.get(source, 0) for source, input_ in self._inputs.items())

    def run_next(self) -> None:
        """Run one work item: a due timer or queued work, else the next record."""
        dispatcher = self._dispatcher
        self._invoker.latest = self._trial = None
        if not dispatcher.ready:
            input_, record, position = self._pending.popleft()  # no record: offsets up to the position are a gap
            if record is not None and self._epochs.must_move_for(input_, record):
                self._pending.appendleft((input_, record, position))
                return
            self._offer(input_, record, position)
        dispatcher.run(0)

    def _offer(self, input_: Input, record: LogRecord | None, position: int) -> None:
        if record is None:
            self._dispatcher.offer(input_, [], position)
            return
        self._trial = WorkItem(record.key or b"", record.timestamp, False, input_, record, None)
        error = self._blames(input_, record)
        if error is not None:
            self._invoker.refuse(input_, record, error)
        self._dispatcher.offer(input_, [] if error is not None else [record], position)

    def _blames(self, input_: Input, record: LogRecord) -> DataError | None:
        blamed = self._isolation.blamed
        if blamed is not None and (blamed.source, blamed.offset) == (input_.source, record.offset):
            return blamed.error
        return None

    def drain(self) -> Iterator[tuple[Input, Sequence[LogRecord], int]]:
        """The records that are still buffered when the isolation is over."""
        while self._pending:
            input_, record, position = self._pending.popleft()
            yield input_, [] if record is None else [record], position

    def isolation_after(self, error: DataError) -> Isolation | None:
        """A step was refused: the isolation for the reopened task. None: isolation does not help, since the step had no
        work item, or the same one that was blamed before."""
        work, blamed = self._invoker.latest or self._trial, self._isolation.blamed
        if work is None:
            return None
        found = Blame.of(work, error)
        if blamed is not None and blamed.same_work(found):
            return None
        return replace(self._isolation, blamed=found)
