"""Dispatches the records of a task to the operators of their inputs, and runs due timers and queued work first.

A key has one running invocation at a time, in the order of its records: work for a key whose handler is suspended
queues up behind it, while other keys proceed. Due timers, retries and queued work run before the next record. See
`RecordOperator` for the hot loop, `Invoker` for single invocations.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from time import perf_counter

from tidegate.engine.processing.context import TaskContext
from tidegate.engine.processing.coroutine_driver import CoroutineDriver
from tidegate.engine.processing.input import Chunk, Input
from tidegate.engine.processing.invocation import Invoker
from tidegate.engine.processing.key_order import KeyOrder
from tidegate.engine.processing.operators.message_operator import MessageOperator
from tidegate.engine.processing.operators.operator import Operator, Pause
from tidegate.engine.processing.operators.record_operator import RecordOperator
from tidegate.engine.processing.operators.shuffle_operator import ShuffleOperator
from tidegate.engine.processing.operators.threaded_operator import ThreadedOperator
from tidegate.engine.processing.prefetch import Prefetch
from tidegate.engine.processing.run_queue import RunQueue
from tidegate.engine.topology.shuffle import ShuffleHandler
from tidegate.functions.declaration.handler_spec import MESSAGES, InputHandler
from tidegate.functions.definition import ServiceDefinition
from tidegate.logs.base import LogRecord
from tidegate.time.combined_watermark import CombinedWatermark

__all__ = ("Dispatcher",)


class Dispatcher:
    def __init__(
        self,
        definition: ServiceDefinition,
        order: KeyOrder,
        run_queue: RunQueue,
        invoker: Invoker,
        time: CombinedWatermark,
        prefetch: Prefetch | None = None,
    ) -> None:
        self._order, self._run_queue, self._invoker, self._prefetch = order, run_queue, invoker, prefetch
        self._records: Operator = (
            RecordOperator(definition, order, run_queue, invoker, time)
            if definition.execution.threads is None
            else ThreadedOperator(order, run_queue, invoker, time)
        )
        self._messages = MessageOperator(order, run_queue, invoker)
        self._shuffle = ShuffleOperator(time, invoker, run_queue)
        self._chunks: deque[Chunk] = deque()
        self.buffered = 0
        """Records that were read and not started yet."""
        self.epoch = 0
        """The epoch of the task."""
        self.next_epoch = 0
        """If it is later than `epoch`: the next record waits until the task has entered this epoch."""

    # -- for the task ------------------------------------------------------------------------------------------------
    @property
    def ready(self) -> bool:
        """There is work to run now."""
        if self._invoker.full:
            return False
        return self._run_queue.has_work or (bool(self._chunks) and self.next_epoch <= self.epoch)

    @property
    def output_watermark(self) -> int:
        """See `RunQueue.output_watermark`."""
        return self._run_queue.output_watermark

    def due_in(self, now: int, monotonic: float) -> Iterator[int]:
        """In how many ms the next processing-time timer and the next retry are due."""
        yield self._run_queue.processing_due - now
        retry = self._order.next_retry
        if retry is not None:
            yield math.ceil((retry - monotonic) * 1000)

    @property
    def combined(self) -> int:
        """Combined records of a shuffle that the next commit will emit."""
        return self._shuffle.pending

    def flush(self) -> None:
        """Emit the combined records of a shuffle, before a commit is frozen."""
        if self._shuffle.pending:
            self._shuffle.flush(self._invoker.idle()[1])

    def busy(self, key: bytes) -> bool:
        return key in self._order.busy

    def offer(self, input_: Input, records: Sequence[LogRecord], position: int, epoch: int = 0) -> None:
        """Accept records that were read, in order. `epoch`: the task must have entered it before it handles them."""
        self.buffered += len(records)
        self._chunks.append(Chunk(input_, input_.fresh(records), position, epoch))
        self.buffered += len(self._chunks[-1].records) - len(records)
        if self._prefetch is not None and len(self._chunks) > 1:
            self._prefetch.begin(self._chunks[-1])
        if records:
            input_.time.received()

    def tick(self, now: int, monotonic: float) -> None:
        """The clock has moved."""
        self._run_queue.tick(now, monotonic)

    def resume(self, inputs: Iterable[Input]) -> None:
        """After a restart: event time does not advance until these inputs' unfinished records, and the timers that were
        due, have been started again."""
        self._run_queue.resume(inputs)

    def time_moved(self) -> None:
        """A channel's watermark has changed."""
        self._run_queue.time_moved()

    def enter(self, epoch: int) -> None:
        """The task has entered this epoch."""
        self.epoch = epoch

    def run(self, budget: float) -> None:
        """Handle records and other work for about `budget` seconds."""
        deadline, invoker = perf_counter() + budget, self._invoker
        try:
            while self.ready:
                driver, context = invoker.idle()
                if driver.drive(partial(self._slice, driver, context, deadline)) or perf_counter() >= deadline:
                    return
        except BaseException as error:
            invoker.fail(error)  # the failed record counts as started: its position must not be committed
            raise
        finally:
            invoker.end_slice()

    async def close(self) -> None:
        """Wait for the prefetches that are in flight."""
        if self._prefetch is not None:
            await self._prefetch.close()

    # -- one slice ---------------------------------------------------------------------------------------------------
    def _slice(self, driver: CoroutineDriver, context: TaskContext, deadline: float) -> bool:
        """False: the handler that this driver drives has suspended, and another driver must continue."""
        while True:
            if self._invoker.full:
                return True
            if self._run_queue.has_work:
                work = self._run_queue.next()
                if work is not None:
                    if not self._invoker.perform(driver, context, work):
                        return False
                    if perf_counter() >= deadline:
                        return True
                    continue
            if not self._chunks:
                return True
            chunk = self._chunks[0]
            if chunk.epoch > self.epoch:
                self.next_epoch = chunk.epoch
                return True
            first = chunk.index
            try:
                pause = self._operator(chunk.input.handler).run(driver, context, chunk, deadline)
            finally:
                self._account(chunk, chunk.index - first)
            if pause is not Pause.CONTINUE:
                return pause is Pause.TIME_UP

    def _operator(self, handler: InputHandler) -> Operator:
        if isinstance(handler, ShuffleHandler):
            return self._shuffle
        return self._messages if handler is MESSAGES else self._records

    def _account(self, chunk: Chunk, taken: int) -> None:
        """Update counters and the position of the input after records of a chunk."""
        index = chunk.index
        self.buffered -= taken
        self._invoker.handled += taken
        if index >= len(chunk.records):
            chunk.input.position = chunk.position
            self._chunks.popleft()
        elif taken:
            chunk.input.position = chunk.records[index - 1].offset + 1
        if not chunk.input.catching_up:
            self._run_queue.caught_up(chunk.input)
