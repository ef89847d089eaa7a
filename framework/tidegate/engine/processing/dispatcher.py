"""From records to handlers: the hot loop. What happens between two commits.

One key is handled by one invocation at a time, in the order of its records: what comes for a key whose handler waits
queues up behind it, while other keys go on. Timers and repetitions are *urgent*: they run before the next record is
taken. What becomes of one piece of work is in `handling`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice, repeat
from time import perf_counter
from typing import Any, Final

from tidegate import faults
from tidegate.engine.processing.context import TaskContext
from tidegate.engine.processing.coroutine_driver import FAILURES, CoroutineDriver
from tidegate.engine.processing.input import Chunk, Input
from tidegate.engine.processing.invocation import Invoker
from tidegate.engine.processing.key_order import KeyOrder
from tidegate.engine.processing.prefetch import Prefetch
from tidegate.engine.processing.run_queue import RunQueue
from tidegate.engine.processing.shuffle_operator import ShuffleOperator
from tidegate.engine.processing.work_item import WorkItem
from tidegate.engine.topology.shuffle import ShuffleHandler
from tidegate.errors import DataError, MissingKeyError
from tidegate.functions.definition import ServiceDefinition
from tidegate.functions.handler_call import check_result
from tidegate.functions.handler_spec import MESSAGES
from tidegate.logs.base import LogRecord
from tidegate.logs.records import read_columns
from tidegate.state.handles import InlineValue
from tidegate.state.overlay import ABSENT
from tidegate.time.clock import MIN_TIME, Clock
from tidegate.time.combined_watermark import CombinedWatermark, OutsideChannel

__all__ = ("Dispatcher",)

_NONE: Final = repeat(None)
_NOBODY: Final = object()
_STRETCH: Final = 512
"""For how many records the state is looked up at once, at most."""
_LEAST: Final = 16
"""And at least."""


class Dispatcher:
    def __init__(
        self,
        definition: ServiceDefinition,
        order: KeyOrder,
        agenda: RunQueue,
        handling: Invoker,
        time: CombinedWatermark,
        clock: Clock,
        prefetch: Prefetch | None = None,
    ) -> None:
        self._definition, self._order, self._agenda = definition, order, agenda
        self._handling, self._time, self._clock, self._prefetch = handling, time, clock, prefetch
        self._shuffle = ShuffleOperator(time, handling, self.time_moved)
        self._chunks: deque[Chunk] = deque()
        self._stride = 16
        """After how many records to look at the clock."""
        self._pace = 0.0
        """Records per second, as of late. State is looked up for as many as will be handled without a break."""
        self.buffered = 0
        """Records that were read and not yet taken up."""
        self.epoch = 0
        """The one that the task is in."""
        self.next_epoch = 0
        """If later: the next record must wait until the task is in this one."""

    # -- what the engine sees ----------------------------------------------------------------------------------------
    @property
    def ready(self) -> bool:
        """There is something to do now."""
        if self._handling.full:
            return False
        return self._agenda.urgent or (bool(self._chunks) and self.next_epoch <= self.epoch)

    @property
    def passed(self) -> int:
        """The time that is over for those downstream: the watermark, unless timers that it fires are not done."""
        return self._agenda.passed

    def due_in(self, now: int, monotonic: float) -> Iterator[int]:
        """In how many ms the next processing-time timer and the next repetition are due."""
        yield self._agenda.processing_due - now
        repetition = self._order.next_repetition
        if repetition is not None:
            yield math.ceil((repetition - monotonic) * 1000)

    @property
    def combined(self) -> int:
        """Records that a shuffle has combined for the next commit."""
        return self._shuffle.pending

    def flush(self) -> None:
        """A commit is about to be frozen: emit what was combined for it."""
        if self._shuffle.pending:
            self._shuffle.flush(self._handling.idle()[1])

    def busy(self, key: bytes) -> bool:
        return key in self._order.busy

    def offer(self, input_: Input, records: Sequence[LogRecord], position: int, epoch: int = 0) -> None:
        """Records that were read, in order. epoch: in which the task must be before it handles them."""
        self.buffered += len(records)
        self._chunks.append(Chunk(input_, input_.fresh(records), position, epoch))
        self.buffered += len(self._chunks[-1].records) - len(records)
        if self._prefetch is not None and len(self._chunks) > 1:
            self._prefetch.begin(self._chunks[-1])
        channel = input_.channel
        if channel is not None and records:
            channel.active_at, channel.idle = self._clock.monotonic(), False

    def tick(self, now: int, monotonic: float) -> None:
        """The clock has moved."""
        self._agenda.tick(now, monotonic)

    def resume(self, inputs: Iterable[Input]) -> None:
        """After a restart: time stands still until these inputs' unfinished records, and the timers that were due,
        are taken up again."""
        self._agenda.resume(inputs)

    def time_moved(self) -> None:
        """A channel's watermark has changed."""
        self._agenda.time_moved()

    def enter(self, epoch: int) -> None:
        """The task is in this epoch now."""
        self.epoch = epoch

    def run(self, budget: float) -> None:
        """Handle what is there for about `budget` seconds."""
        deadline, handling = perf_counter() + budget, self._handling
        try:
            while self.ready:
                runner, context = handling.idle()
                if runner.drive(partial(self._slice, runner, context, deadline)) or perf_counter() >= deadline:
                    return
        except BaseException as error:
            handling.fail(error)  # the record at fault counts as taken up: nothing may be committed
            raise
        finally:
            handling.rest()

    async def close(self) -> None:
        """Wait for what is read ahead."""
        if self._prefetch is not None:
            await self._prefetch.close()

    # -- one slice ---------------------------------------------------------------------------------------------------
    def _slice(self, runner: CoroutineDriver, context: TaskContext, deadline: float) -> bool:
        """False: the handler that this runner drives has suspended, and another runner must go on."""
        while True:
            if self._handling.full:
                return True
            if self._agenda.urgent:
                work = self._agenda.next()
                if work is not None:
                    if not self._handling.perform(runner, context, work):
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
            first, started = chunk.index, perf_counter()
            try:
                handler = chunk.input.handler
                if isinstance(handler, ShuffleHandler):
                    done = self._shuffle.run(handler, context, chunk, deadline)
                elif handler is MESSAGES:
                    done = self._letters(runner, context, chunk, deadline)
                else:
                    done = self._drive(runner, context, chunk, deadline)
            finally:
                self._account(chunk, chunk.index - first, perf_counter() - started)
            if done is not None:
                return done

    def _drive(self, runner: CoroutineDriver, context: TaskContext, chunk: Chunk, deadline: float) -> bool | None:
        """Handle the chunk's records until there are other things to do. False: one has suspended."""
        loop, lent = self._records(context, chunk, deadline), context.lent_to(chunk.input)
        if lent is not None:
            lent.lend()
        try:
            yielded = loop.send(None)
        except BaseException as error:
            through = isinstance(error, StopIteration)
            self._time.halt(done=through)
            if lent is not None:
                lent.end()
            if through:
                return error.value  # type: ignore[attr-defined, no-any-return]
            raise
        self._time.halt()
        if lent is not None:
            lent.suspend(context.journal)
        input_, record, journal = chunk.input, chunk.current, context.journal
        context.hold(record)
        value = input_.decode(record.value)  # type: ignore[arg-type]  # again: it is as it was before the handler
        work = WorkItem(journal.key, journal.timestamp, context.late, input_, record, value)
        self._handling.park(runner, context, loop, yielded, work)
        self._observe(input_.channel, journal.timestamp, chunk.mark)
        return False

    async def _records(self, context: TaskContext, chunk: Chunk, deadline: float) -> bool | None:
        """The hot loop: the chunk's records, one after the other. True: the time is up. None: look for other things
        to do.

        Everything that a plain record needs is in here, in local variables: a call per record and step would cost a
        third of the throughput. A handler that awaits nothing is called directly (see `handler_call`). This is a
        coroutine for the others, because to await one that does not suspend takes less than half of what `send` takes:
        no StopIteration is made (0.10 µs against 0.25). If one does suspend, this coroutine is parked with it, and ends
        with it."""
        input_, records, index = chunk.input, chunk.records, chunk.index
        count = len(records)
        decode, extract, channel = input_.decode, input_.extract, input_.channel
        source, busy, time = input_.source, self._order.busy, self._time
        bound = channel.bound + 1 if channel is not None and channel.bound is not None else None
        observe = channel.generator.observe if channel is not None and bound is None else None
        alone = channel is not None and time.single is channel
        passing = alone and bound is not None and extract is None
        timed, top = channel is not None, MIN_TIME
        process, direct, states = context.bound.inputs[input_.topic.name]
        state = states[0] if len(states) == 1 else None
        journal, undo, timers, mutable = context.journal, context.journal.undo, context.timers_set, context.mutable
        parts, unfinished, agenda = context.parts, self._order.unfinished, self._agenda
        handling = self._handling
        only, cells = context.only_state
        lent: Any = context.lent_to(input_)
        lending: Any = _NOBODY if lent is None else lent
        exact, before = None if only is None else only.exact, ABSENT
        given: Any = state
        dirty: Any = None if cells is None else cells.dirty
        between = 0 if cells is None else cells.stretch
        context.chunk, context.source, context.fired, context.is_late = chunk, source, None, None
        armed, stride = faults.armed, self._stride
        value: Any = None
        rows: Iterator[tuple[Any, Any, int, Any]] = iter(())
        gathered = index
        while (index := chunk.index) < count:
            if index >= gathered:
                soon = int((deadline - perf_counter()) * self._pace)
                gathered = min(count, index + max(_LEAST, min(_STRETCH, soon)))
                keys, raws, timestamps = read_columns(records, index, gathered)
                entries = _NONE if cells is None else cells.gather(keys)
                rest = chunk.follow(raws, gathered)
                rows = zip(keys, rest, timestamps, entries, strict=False)
                time.halt(done=True)
                timed = channel is not None
                if passing and not unfinished:
                    top = time.follow(channel, timestamps, rest, bound)  # type: ignore[arg-type]
                    if timed := top >= agenda.event_due:
                        time.halt()
            for key, raw, timestamp, entry in islice(rows, stride):
                try:
                    value = decode(raw)
                    if extract is not None:
                        timestamp = extract(value)
                    if key is None:
                        raise MissingKeyError(source.topic)
                    if observe is not None:
                        chunk.mark = int(observe(timestamp, value))
                except Exception as error:
                    time.halt()
                    timed = True
                    handling.unreadable(context, input_, chunk.current, error)
                    context.chunk, context.is_late = chunk, None
                    continue
                if busy and key in busy:
                    self._order.queue(
                        WorkItem(key, timestamp, timestamp <= time.watermark, input_, chunk.current, value)
                    )
                else:
                    # TaskContext.begin, written out.
                    context.mark = None
                    journal.key, journal.timestamp = key, timestamp
                    if lent is not None:
                        only.seen = entry  # type: ignore[union-attr]
                        if entry is not None and (before := entry.value) is not ABSENT:
                            given, lent.value = lent, before
                        else:
                            given, lent.value = state, ABSENT
                    elif only is not None:
                        only.seen = entry
                    else:
                        for part in parts:
                            part.seen = None
                    if armed:
                        faults.fault_point("handler.before")
                    try:
                        # Unpacking one state would take longer than calling with it.
                        if direct is not None:
                            result = (
                                direct(context, value, given) if state is not None else direct(context, value, *states)
                            )
                            if result is not None:
                                check_result(result, self._definition.name)
                        elif state is not None:
                            await process(context, value, given)
                        else:
                            await process(context, value, *states)
                    except FAILURES as error:
                        if context.private is not None:
                            raise
                        time.halt()
                        timed = True
                        work = WorkItem(key, timestamp, context.late, input_, chunk.current, value)
                        handling.failed(context, work, error)
                        if lent is not None:
                            lent.lend()
                    else:
                        if context.private is not None:
                            return None  # it was parked, and `_unpark` goes on
                        try:
                            if given is lending:
                                # `ValueHandle.value`, written out.
                                if undo and type(lent) is not InlineValue:
                                    lent.lend()  # it was cleared
                                elif (after := lent.value) is not before:
                                    if type(after) is exact:
                                        entry.value = after
                                        if entry.changed != between:
                                            entry.changed = between
                                            dirty.append(entry)
                                    else:
                                        lent.live.put(after)
                                if undo:
                                    undo.clear()
                            elif mutable:
                                journal.settle()
                            elif undo:
                                undo.clear()
                            if timers:
                                agenda.queue(timers)
                                if agenda.urgent or top >= agenda.event_due:
                                    time.halt()
                                    timed = True
                        except DataError as error:
                            time.halt()
                            timed = True
                            work = WorkItem(key, timestamp, context.late, input_, chunk.current, value)
                            handling.failed(context, work, error)
                    if armed:
                        faults.fault_point("handler.after")
                if timed:
                    if bound is not None:
                        # `_observe`, written out for the usual case.
                        if (mark := timestamp - bound) > channel.watermark:  # type: ignore[union-attr]
                            channel.watermark = mark  # type: ignore[union-attr]
                            if alone and not unfinished:
                                time.watermark = mark
                                if mark >= agenda.event_due:
                                    agenda.urgent = True
                            else:
                                agenda.time_moved()
                    elif observe is not None:
                        self._observe(channel, timestamp, chunk.mark)
                    if agenda.urgent:
                        return None
            if perf_counter() >= deadline:
                return True
        return None

    def _observe(self, channel: OutsideChannel | None, timestamp: int, observed: int) -> None:
        """A record was taken up: its channel's time may go on."""
        if channel is None:
            return
        mark = observed if channel.bound is None else timestamp - channel.bound - 1
        if mark > channel.watermark:
            channel.watermark = mark
            self.time_moved()

    def _account(self, chunk: Chunk, taken: int, seconds: float) -> None:
        """Where the chunk stands, and after how many records to look at the clock: about every 0.2 ms of work."""
        index = chunk.index
        self.buffered -= taken
        self._handling.handled += taken
        if index >= len(chunk.records):
            chunk.input.position = chunk.position
            self._chunks.popleft()
        elif taken:
            chunk.input.position = chunk.records[index - 1].offset + 1
        if taken:
            self._pace = taken / max(seconds, 1e-7)
            self._stride = max(1, min(64, int(0.0002 * self._pace)))
        if not chunk.input.catching_up:
            self._agenda.caught_up(chunk.input)

    def _letters(self, runner: CoroutineDriver, context: TaskContext, chunk: Chunk, deadline: float) -> bool | None:
        """Messages to actors. Each is a piece of work of its own: they carry no time, and are few beside events."""
        input_, busy = chunk.input, self._order.busy
        while chunk.index < len(chunk.records):
            record = chunk.records[chunk.index]
            chunk.index += 1
            try:
                if record.key is None:
                    raise MissingKeyError(input_.source.topic)
                letter = context.mail.read(record)
            except DataError as error:
                self._handling.unreadable(context, input_, record, error)
                continue
            work = WorkItem(record.key, record.timestamp, False, input_, record, letter)
            if record.key in busy:
                self._order.queue(work)
            elif not self._handling.perform(runner, context, work):
                return False
            if self._agenda.urgent:
                return None
            if perf_counter() >= deadline:
                return True
        return None
