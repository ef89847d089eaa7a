"""The operator of user functions: runs the hot loop over the records of a chunk, and handles the uncommon cases."""

from __future__ import annotations

from collections.abc import Coroutine
from itertools import repeat
from time import perf_counter
from typing import Any, Final

from tidegate import faults
from tidegate.engine.processing.context import TaskContext
from tidegate.engine.processing.coroutine_driver import CoroutineDriver
from tidegate.engine.processing.input import Chunk, Input
from tidegate.engine.processing.invocation import Invoker
from tidegate.engine.processing.key_order import KeyOrder
from tidegate.engine.processing.operators.operator import Pause
from tidegate.engine.processing.operators.record_loop import Shape, Stretch, compiled_loop
from tidegate.engine.processing.run_queue import RunQueue
from tidegate.engine.processing.work_item import WorkItem
from tidegate.functions.definition import ServiceDefinition
from tidegate.logs.records import read_columns
from tidegate.state.overlay import Entry
from tidegate.time.clock import MIN_TIME
from tidegate.time.combined_watermark import CombinedWatermark

__all__ = ("RecordLoop", "RecordOperator")

_NO_ENTRIES: Final = repeat(None)
_LONGEST: Final = 512
"""The maximum of records per stretch: their state is looked up at once."""
_SHORTEST: Final = 16


class RecordLoop:
    """The hot loop, with everything that is constant for one handler, input and context."""

    def __init__(self, operator: RecordOperator, context: TaskContext, input_: Input, *, armed: bool) -> None:
        handler = context.bound.inputs[input_.topic.name]
        self.operator, self.context, self.journal = operator, context, context.journal
        self.call, self.states = handler.direct or handler.function, handler.states
        self.awaits = handler.direct is None
        self.inline_value = context.inline_value_for(input_)
        self.cells = context.only_state[1]
        self.topic, self.assigner = input_.source.topic, input_.time
        self.name, self.time, self.run_queue = operator.name, operator.time, operator.run_queue
        self.busy, self.channel = operator.order.busy, self.assigner.channel
        self.advance = None if self.channel is None else operator.run_queue.advance(self.channel)
        self.handle = compiled_loop(
            Shape(
                states=len(handler.states),
                handles=0 if self.cells is not None else len(context.leaf_handles),
                awaits=self.awaits,
                single=self.cells is not None,
                inline=self.inline_value is not None,
                mutable=context.mutable,
                timers=operator.has_timers,
                extracted=self.assigner.extract is not None,
                bounded=self.assigner.lead is not None,
                observed=self.assigner.generator is not None,
                faults=armed,
            )
        )


class RecordOperator:
    """Handles all inputs of a task that have user functions."""

    def __init__(
        self,
        definition: ServiceDefinition,
        order: KeyOrder,
        run_queue: RunQueue,
        invoker: Invoker,
        time: CombinedWatermark,
    ) -> None:
        self.name, self.has_timers = definition.name, bool(definition.timers)
        self.order, self.run_queue, self.time = order, run_queue, time
        self._invoker = invoker
        self._stride = _SHORTEST
        self._pace = 0.0
        """Recent records per second. A stretch has as many as fit in the time slice."""

    def run(self, driver: CoroutineDriver, context: TaskContext, chunk: Chunk, deadline: float) -> Pause:
        first, started = chunk.index, perf_counter()
        loop = self._loop(context, chunk.input)
        context.chunk, context.source, context.fired, context.is_late = chunk, chunk.input.source, None, None
        if loop.inline_value is not None:
            loop.inline_value.activate()
        try:
            pause = self._run(loop, driver, chunk, deadline)
        except BaseException:
            self.time.halt()
            if loop.inline_value is not None:
                loop.inline_value.deactivate()
            raise
        if loop.inline_value is not None and pause is not Pause.SUSPENDED:
            loop.inline_value.deactivate()
        self._measure(chunk.index - first, perf_counter() - started)
        return pause

    def _run(self, loop: RecordLoop, driver: CoroutineDriver, chunk: Chunk, deadline: float) -> Pause:
        while chunk.index < len(chunk.records):
            pause = loop.handle(loop, self._stretch(loop, chunk, deadline))
            if loop.awaits:
                try:
                    yielded = pause.send(None)
                except StopIteration as ended:
                    pause = ended.value
                else:
                    self._suspended(loop, driver, chunk, pause, yielded)
                    return Pause.SUSPENDED
            self.time.halt(done=True)
            if pause is not None:
                return pause  # type: ignore[no-any-return]
        return Pause.CONTINUE

    def _loop(self, context: TaskContext, input_: Input) -> RecordLoop:
        key = input_, faults.armed
        loop = context.loops.get(key)
        if loop is None:
            loop = context.loops[key] = RecordLoop(self, context, input_, armed=faults.armed)
        return loop

    def _stretch(self, loop: RecordLoop, chunk: Chunk, deadline: float) -> Stretch:
        """The next records, with their state looked up. If no work is unfinished, the watermark follows them without a
        call per record."""
        start, soon = chunk.index, int((deadline - perf_counter()) * self._pace)
        end = min(len(chunk.records), start + max(_SHORTEST, min(_LONGEST, soon)))
        keys, raws, timestamps = read_columns(chunk.records, start, end)
        entries = _NO_ENTRIES if loop.cells is None else loop.cells.gather(keys)
        rest = chunk.follow(raws, end)
        watch, end_watermark = loop.assigner.channel is not None, MIN_TIME
        if not self.order.unfinished:
            reached = loop.assigner.follow(timestamps, rest)
            if reached is not None:
                watch, end_watermark = reached >= self.run_queue.event_due, reached
                if watch:
                    self.time.halt()
        rows = zip(keys, rest, timestamps, entries, strict=False)
        decode = chunk.input.decode
        if chunk.input.takes_tombstones and not all(raws):
            decode = chunk.input.read
        return Stretch(chunk, rows, decode, end, self._stride, deadline, watch, end_watermark)

    def _measure(self, taken: int, seconds: float) -> None:
        """Set the stride so that the clock is read about every 0.2 ms."""
        if taken:
            self._pace = taken / max(seconds, 1e-7)
            self._stride = max(1, min(64, int(0.0002 * self._pace)))

    # -- uncommon cases ----------------------------------------------------------------------------------------------
    def unreadable(self, context: TaskContext, chunk: Chunk, error: Exception) -> None:
        self.time.halt()
        self._invoker.unreadable(context, chunk.input, chunk.current, error)
        context.chunk, context.is_late = chunk, None

    def queue(self, chunk: Chunk, key: bytes, timestamp: int, value: Any) -> None:
        """Queue a record whose key is busy."""
        late = timestamp <= self.time.watermark
        self.order.queue(WorkItem(key, timestamp, late, chunk.input, chunk.current, value))

    def failed(
        self, context: TaskContext, chunk: Chunk, key: bytes, timestamp: int, value: Any, error: BaseException
    ) -> None:
        """The handler has failed. If it had suspended before, its driver gets the error."""
        if context.private is not None:
            raise error
        self.time.halt()
        work = WorkItem(key, timestamp, context.late, chunk.input, chunk.current, value)
        self._invoker.failed(context, work, error)
        if (inline_value := context.inline_value_for(chunk.input)) is not None:
            inline_value.activate()

    def set_timers(self, timers: list[Entry], end_watermark: int) -> bool:
        """Queue the timers that a handler has set. Returns whether one of them is due before the stretch ends with
        `end_watermark`: the watermark must then be advanced record by record."""
        self.run_queue.queue(timers)
        if not self.run_queue.has_work and end_watermark < self.run_queue.event_due:
            return False
        self.time.halt()
        return True

    def _suspended(
        self, loop: RecordLoop, driver: CoroutineDriver, chunk: Chunk, coroutine: Coroutine[Any, Any, Any], yielded: Any
    ) -> None:
        """Park the loop with its suspended handler; both end together."""
        self.time.halt()
        context, input_, record = loop.context, chunk.input, chunk.current
        if loop.inline_value is not None:
            loop.inline_value.suspend(context.journal)
        context.hold(record)
        key, timestamp = context.journal.key, context.journal.timestamp
        value = input_.read(record.value)  # decoded again: the handler may have mutated the other one
        work = WorkItem(key, timestamp, context.late, input_, record, value)
        self._invoker.park(driver, context, coroutine, yielded, work)
        watermark = chunk.watermark if input_.time.generator is not None else input_.time.watermark(timestamp, value)
        if input_.time.raises(watermark):
            self.run_queue.time_moved()
