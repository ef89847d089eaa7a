"""The operator of a mailbox. Each message is its own work item: messages have no event time, and are few compared with
events."""

from __future__ import annotations

from time import perf_counter

from tidegate.engine.processing.context import TaskContext
from tidegate.engine.processing.coroutine_driver import CoroutineDriver
from tidegate.engine.processing.input import Chunk
from tidegate.engine.processing.invocation import Invoker
from tidegate.engine.processing.key_order import KeyOrder
from tidegate.engine.processing.operators.operator import Pause
from tidegate.engine.processing.run_queue import RunQueue
from tidegate.engine.processing.work_item import WorkItem
from tidegate.errors import DataError, MissingKeyError

__all__ = ("MessageOperator",)


class MessageOperator:
    def __init__(self, order: KeyOrder, run_queue: RunQueue, invoker: Invoker) -> None:
        self._order, self._run_queue, self._invoker = order, run_queue, invoker

    def run(self, driver: CoroutineDriver, context: TaskContext, chunk: Chunk, deadline: float) -> Pause:
        input_ = chunk.input
        while chunk.index < len(chunk.records):
            record = chunk.records[chunk.index]
            chunk.index += 1
            try:
                if record.key is None:
                    raise MissingKeyError(input_.source.topic)
                message = context.mail.read(record)
            except DataError as error:
                self._invoker.unreadable(context, input_, record, error)
                continue
            work = WorkItem(record.key, record.timestamp, False, input_, record, message)
            if record.key in self._order.busy:
                self._order.queue(work)
            elif not self._invoker.perform(driver, context, work):
                return Pause.SUSPENDED
            if self._run_queue.has_work:
                return Pause.CONTINUE
            if perf_counter() >= deadline:
                return Pause.TIME_UP
        return Pause.CONTINUE
