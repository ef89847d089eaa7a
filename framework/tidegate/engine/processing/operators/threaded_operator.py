"""The operator of user functions that run in threads: each record is its own work item, which the invoker submits."""

from __future__ import annotations

from time import perf_counter

from tidegate.engine.processing.context import TaskContext
from tidegate.engine.processing.coroutine_driver import CoroutineDriver
from tidegate.engine.processing.input import Chunk, Input
from tidegate.engine.processing.invocation import Invoker
from tidegate.engine.processing.key_order import KeyOrder
from tidegate.engine.processing.operators.operator import Pause
from tidegate.engine.processing.run_queue import RunQueue
from tidegate.engine.processing.work_item import WorkItem
from tidegate.errors import MissingKeyError
from tidegate.logs.base import LogRecord
from tidegate.time.combined_watermark import CombinedWatermark

__all__ = ("ThreadedOperator",)


class ThreadedOperator:
    def __init__(self, order: KeyOrder, run_queue: RunQueue, invoker: Invoker, time: CombinedWatermark) -> None:
        self._order, self._run_queue, self._invoker, self._time = order, run_queue, invoker, time

    def run(self, driver: CoroutineDriver, context: TaskContext, chunk: Chunk, deadline: float) -> Pause:
        input_ = chunk.input
        while chunk.index < len(chunk.records):
            record = chunk.records[chunk.index]
            chunk.index += 1
            try:
                work, watermark = self._read(input_, record)
            except Exception as error:
                self._invoker.unreadable(context, input_, record, error)
                continue
            pause = None
            if work.key in self._order.busy:
                self._order.queue(work)
            elif not self._invoker.perform(driver, context, work):
                pause = Pause.SUSPENDED
            if input_.time.raises(watermark):
                self._run_queue.time_moved()
            if pause is not None:
                return pause
            if self._run_queue.has_work:
                return Pause.CONTINUE
            if perf_counter() >= deadline:
                return Pause.TIME_UP
        return Pause.CONTINUE

    def _read(self, input_: Input, record: LogRecord) -> tuple[WorkItem, int]:
        """The work item, and the watermark of its channel after it."""
        value = input_.read(record.value)
        timestamp = input_.time.timestamp(value, record.timestamp)
        if record.key is None:
            raise MissingKeyError(input_.source.topic)
        watermark = input_.time.watermark(timestamp, value)
        late = timestamp <= self._time.watermark
        return WorkItem(record.key, timestamp, late, input_, record, value), watermark
