"""From records to handlers: the order of keys, waiting handlers, timers, failures. What happens between two commits.

One key is handled by one invocation at a time, in the order of its records. A handler that finishes without
suspending is done when `send` returns. One that suspends is *parked*: its key is busy, and what comes for that key
queues up behind it, while other keys go on. Timers and repetitions are *urgent*: they run before the next record is
taken.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from functools import partial
from time import perf_counter
from typing import Any, Final

from tidegate import faults
from tidegate.engine.context import TaskContext
from tidegate.engine.failures import FailureHandling, Outcome
from tidegate.engine.inputs import Chunk, Input
from tidegate.engine.order import KeyOrder
from tidegate.engine.runner import Runner
from tidegate.engine.space import StateSpace
from tidegate.engine.timers import DOMAINS, TimerQueue
from tidegate.engine.work import Work
from tidegate.errors import DataError, DecodeError, HandlerTimeoutError, MissingKeyError, UnknownTimerError
from tidegate.functions.context import TimeDomain, Timer
from tidegate.functions.service import ServiceDefinition
from tidegate.logs.base import LogRecord
from tidegate.state.layout import EVENT, PROCESSING
from tidegate.state.overlay import ABSENT
from tidegate.time.clock import MAX_TIME, MIN_TIME, Clock
from tidegate.time.progress import TaskTime

__all__ = ("Dispatcher",)

_DOMAIN_NAMES: Final[dict[int, TimeDomain]] = {number: name for name, number in DOMAINS.items()}
_CANCELLED: Final = asyncio.CancelledError


class Dispatcher:
    def __init__(
        self,
        definition: ServiceDefinition,
        number: int,
        space: StateSpace,
        time: TaskTime,
        queues: dict[int, TimerQueue],
        clock: Clock,
        failures: FailureHandling,
        new_context: Callable[[], TaskContext],
        wake: Callable[[], None],
    ) -> None:
        self._definition, self._number, self._space, self._time = definition, number, space, time
        self._queues, self._clock, self._failures = queues, clock, failures
        self._new_context, self._wake = new_context, wake
        self._loop = asyncio.get_running_loop()
        self._idle: list[tuple[Runner, TaskContext]] = []
        self._runners: list[Runner] = []
        self._chunks: deque[Chunk] = deque()
        self._order = KeyOrder()
        self._held: deque[tuple[int, int]] = deque()
        self._resuming: set[Input | None] = set()
        self._parked = 0
        self._now = clock.now()
        self._urgent = True
        self._event_due = queues[EVENT].due
        self._stride = 16
        self.buffered = 0
        """Records that were read and not yet taken up."""
        self.handled = 0
        """Records and timers that were dealt with since the engine last asked."""
        self.failure: BaseException | None = None

    # -- what the engine sees ----------------------------------------------------------------------------------------
    @property
    def ready(self) -> bool:
        """There is something to do now."""
        return self._parked < self._definition.concurrency and (self._urgent or bool(self._chunks))

    @property
    def unfinished(self) -> int:
        """Records and timers that were taken up and are not done."""
        return len(self._order.unfinished)

    @property
    def passed(self) -> int:
        """The time that is over for those downstream: the watermark, unless timers that it fires are not done."""
        timers = (work.timer for work in self._order.unfinished.values() if work.timer is not None)
        firing = min((timer.at for timer in timers if timer.time == "event"), default=MAX_TIME + 1)
        return min(self._time.watermark, self._queues[EVENT].due - 1, firing - 1)

    @property
    def waiting_for_handlers(self) -> bool:
        """Handlers are under way that will wake the engine by themselves."""
        return self._parked > 0

    def due_in(self, now: int, monotonic: float) -> Iterator[int]:
        """In how many ms the next processing-time timer and the next repetition are due."""
        yield self._queues[PROCESSING].due - now
        repetition = self._order.next_repetition
        if repetition is not None:
            yield math.ceil((repetition - monotonic) * 1000)

    def busy(self, key: bytes) -> bool:
        return key in self._order.busy

    def offer(self, input_: Input, records: Sequence[LogRecord], position: int) -> None:
        """Records that were read, in order."""
        self.buffered += len(records)
        self._chunks.append(Chunk(input_, input_.fresh(records), position))
        self.buffered += len(self._chunks[-1].records) - len(records)
        channel = input_.channel
        if channel is not None and records:
            channel.active_at, channel.idle = self._clock.now(), False

    def tick(self, now: int, monotonic: float) -> None:
        """The clock has moved."""
        self._now = now
        if self._queues[PROCESSING].due <= now:
            self._urgent = True
        self._order.tick(monotonic)
        if self._order.runnable:
            self._urgent = True

    def resume(self, inputs: Iterable[Input]) -> None:
        """After a restart: time stands still until these inputs' unfinished records, and the timers that are due at
        the last commit's watermark, are taken up again. They come before all that the channels' watermarks mean."""
        self._resuming = {None, *inputs}

    def _resumed(self, input_: Input | None) -> None:
        self._resuming.discard(input_)
        if not self._resuming:
            self.time_moved()

    def time_moved(self) -> None:
        """A channel's watermark has changed. It counts once everything that was taken up before is finished."""
        if self._resuming:
            return
        lowest = self._time.lowest()
        newest = self._order.sequence
        if not self._order.unfinished:
            self._apply(lowest)
        elif self._held and self._held[-1][0] == newest:
            self._held[-1] = (newest, max(lowest, self._held[-1][1]))
        else:
            self._held.append((newest, lowest))

    def run(self, budget: float) -> None:
        """Handle what is there for about `budget` seconds."""
        deadline = perf_counter() + budget
        try:
            while self.ready:
                runner, context = self._idle[-1] if self._idle else self._add_runner()
                if runner.drive(partial(self._slice, runner, context, deadline)) or perf_counter() >= deadline:
                    return
        except BaseException as error:
            self.failure = self.failure or error  # the record at fault counts as taken up: nothing may be committed
            raise

    async def close(self) -> None:
        """Cancel the handlers that wait; nothing of them happened."""
        await asyncio.gather(*(runner.close() for runner in self._runners))

    def _add_runner(self) -> tuple[Runner, TaskContext]:
        runner = Runner(self._loop, f"{self._definition.name}.{self._number}")
        self._runners.append(runner)
        self._idle.append((runner, self._new_context()))
        return self._idle[-1]

    # -- one slice ---------------------------------------------------------------------------------------------------
    def _slice(self, runner: Runner, context: TaskContext, deadline: float) -> bool:
        """False: the handler that this runner drives has suspended, and another runner must go on."""
        while True:
            if self._parked >= self._definition.concurrency:
                return True
            if self._urgent:
                work = self._next_urgent()
                if work is not None:
                    if not self._perform(runner, context, work):
                        return False
                    if perf_counter() >= deadline:
                        return True
                    continue
            if not self._chunks:
                return True
            if self._definition.forward is not None:
                done = self._forward(context, deadline)
            else:
                done = self._records(runner, context, deadline)
            if done is not None:
                return done

    def _records(self, runner: Runner, context: TaskContext, deadline: float) -> bool | None:
        """The hot loop: the first chunk's records, one after the other. None: look for other things to do.

        Everything that a plain record needs is in here, in local variables: a call per record and step would cost a
        third of the throughput."""
        chunk = self._chunks[0]
        input_, records, index = chunk.input, chunk.records, chunk.index
        count, first, check = len(records), chunk.index, chunk.index + self._stride
        decode, extract, channel = input_.decode, input_.extract, input_.channel
        source, busy, time = input_.source, self._order.busy, self._time
        bound = channel.bound if channel is not None else None
        observe = channel.generator.observe if channel is not None and bound is None else None
        alone = channel is not None and time.single is channel
        assert context.bound is not None  # noqa: S101  only re-keying services have none
        process, states = context.bound.process, context.bound.states
        state = states[0] if len(states) == 1 else None
        journal, undo, timers, mutable = context.journal, context.journal.undo, context.timers_set, context.mutable
        emitted, parts, unfinished = context.emitted, context.parts, self._order.unfinished
        context.source, context.fired = source, None
        started, armed, late, suspended = perf_counter(), faults.armed, False, False
        value: Any = None
        mark = MIN_TIME
        try:
            while index < count:
                record = records[index]
                index += 1
                key, timestamp = record.key, record.timestamp
                try:
                    value = decode(record.value)  # type: ignore[arg-type]
                    if extract is not None:
                        timestamp = extract(value, record)
                    if key is None:
                        raise MissingKeyError(source.topic)
                    if observe is not None:
                        mark = int(observe(timestamp, value))
                except Exception as error:
                    self._unreadable(context, input_, record, error)
                    continue
                late = timestamp <= time.watermark
                if key in busy:
                    self._order.queue(Work(key, timestamp, late, input_, record, value))
                else:
                    # TaskContext.begin, written out.
                    context.record, context.is_late = record, late
                    journal.key, journal.timestamp = key, timestamp
                    context.mark = len(emitted)
                    for part in parts:
                        part.seen = None
                    if armed:
                        faults.fault_point("handler.before")
                    # Unpacking one state would take longer than calling with it.
                    coroutine = process(context, value, *states) if state is None else process(context, value, state)
                    try:
                        yielded = coroutine.send(None)
                    except StopIteration:
                        try:
                            if mutable:
                                journal.settle()
                            else:
                                undo.clear()
                            if timers:
                                self._queue_timers(context)
                        except DataError as error:
                            self._failed(context, Work(key, timestamp, late, input_, record, value), error)
                    except (Exception, _CANCELLED) as error:
                        self._failed(context, Work(key, timestamp, late, input_, record, value), error)
                    else:
                        suspended = True
                        work = Work(key, timestamp, late, input_, record, value)
                        self._park(runner, context, coroutine, yielded, work)
                    if armed and not suspended:
                        faults.fault_point("handler.after")
                if channel is not None:
                    if bound is not None:
                        mark = timestamp - bound - 1
                    if mark > channel.watermark:
                        channel.watermark = mark
                        if alone and not unfinished:
                            time.watermark = mark
                            if mark >= self._event_due:
                                self._urgent = True
                        else:
                            self.time_moved()
                if suspended:
                    return False
                if self._urgent or self._parked >= self._definition.concurrency:
                    return None
                if index >= check:
                    if perf_counter() >= deadline:
                        return True
                    check = index + self._stride
            return None
        finally:
            self._account(chunk, index, index - first, perf_counter() - started)

    def _account(self, chunk: Chunk, index: int, taken: int, seconds: float) -> None:
        """Where the chunk stands, and after how many records to look at the clock: about every 0.2 ms."""
        chunk.index = index
        self.buffered -= taken
        self.handled += taken
        if index >= len(chunk.records):
            chunk.input.position = chunk.position
            self._chunks.popleft()
        elif taken:
            chunk.input.position = chunk.records[index - 1].offset + 1
        if taken:
            self._stride = max(1, min(64, int(0.0002 * taken / max(seconds, 1e-7))))
        if self._resuming and chunk.input in self._resuming and not chunk.input.catching_up:
            self._resumed(chunk.input)

    def _forward(self, context: TaskContext, deadline: float) -> bool | None:
        """For a re-keying service: place each record by its new key."""
        forward = self._definition.forward
        assert forward is not None  # noqa: S101  asked before
        chunk = self._chunks[0]
        input_, first, started = chunk.input, chunk.index, perf_counter()
        index, channel = first, input_.channel
        try:
            while index < len(chunk.records):
                record = chunk.records[index]
                index += 1
                try:
                    value = input_.decode(record.value)  # type: ignore[arg-type]
                    timestamp = record.timestamp if input_.extract is None else input_.extract(value, record)
                    late = timestamp <= self._time.watermark
                    mark = int(channel.generator.observe(timestamp, value)) if channel is not None else MIN_TIME
                    context.begin(b"", timestamp, record, input_.source, late)
                    context.forward(forward(value))
                except Exception as error:
                    self._unreadable(context, input_, record, error)
                    continue
                if channel is not None and mark > channel.watermark:
                    channel.watermark = mark
                    self.time_moved()
                if index % 16 == 0 and perf_counter() >= deadline:
                    return True
            return None
        finally:
            self._account(chunk, index, index - first, perf_counter() - started)

    # -- timers and other urgent things ------------------------------------------------------------------------------
    def _next_urgent(self) -> Work | None:
        """What must run before the next record. None: nothing is urgent any more."""
        if self._order.runnable:
            return self._order.runnable.popleft()
        for domain, upto in ((EVENT, self._time.watermark), (PROCESSING, self._now)):
            queue = self._queues[domain]
            while (due := queue.pop(upto)) is not None:
                work = self._timer_work(domain, *due)
                if work is not None:
                    return work
        self._event_due = self._queues[EVENT].due
        self._urgent = False
        if None in self._resuming:
            self._resumed(None)
            return self._next_urgent() if self._urgent else None
        return None

    def _timer_work(self, domain: int, at: int, key: bytes, name: str) -> Work | None:
        """None: it is stale, or its key is busy and it waits there."""
        if not self._is_set(domain, at, key, name):
            return None
        work = Work(key, at, False, timer=Timer(name=name, at=at, time=_DOMAIN_NAMES[domain]))
        waiting = self._order.busy.get(key)
        if waiting is None:
            return work
        if not any(other.timer == work.timer for other in waiting):
            self._order.queue(work)
        return None

    def _is_set(self, domain: int, at: int, key: bytes, name: str) -> bool:
        entry = self._space.timers.entry(key, name.encode())
        return entry.value is not ABSENT and entry.value == (domain, at)

    def _queue_timers(self, context: TaskContext) -> None:
        """Timers that a finished handler has set."""
        for entry in context.timers_set:
            if entry.value is not ABSENT:
                domain, at = entry.value
                self._queues[domain].push((at, entry.key, entry.sub.decode()))
                if domain == EVENT:
                    self._event_due = min(self._event_due, at)
                if at <= (self._time.watermark if domain == EVENT else self._now):
                    self._urgent = True
        context.timers_set.clear()

    def _apply(self, watermark: int) -> None:
        if watermark > self._time.watermark:
            self._time.watermark = watermark
            if watermark >= self._event_due:
                self._urgent = True

    # -- one piece of work -------------------------------------------------------------------------------------------
    def _perform(self, runner: Runner, context: TaskContext, work: Work) -> bool:
        """Handle a record that had to wait, a repetition, or a timer. False: it has suspended."""
        if faults.armed and work.timer is None:
            faults.fault_point("handler.before")
        try:
            coroutine = self._begin(context, work)
            if coroutine is None:
                self._done(work)
                return True
            yielded = coroutine.send(None)
        except StopIteration:
            self._settle(context, work)
        except (Exception, _CANCELLED) as error:
            self._failed(context, work, error)
        else:
            self._park(runner, context, coroutine, yielded, work)
            return False
        return True

    def _begin(self, context: TaskContext, work: Work) -> Coroutine[Any, Any, Any] | None:
        """None: the timer was cancelled, moved or fired meanwhile."""
        bound, timer = context.bound, work.timer
        source = work.input.source if work.input is not None else None
        assert bound is not None  # noqa: S101  re-keying services have no work of this kind
        if timer is None:
            context.begin(work.key, work.timestamp, work.record, source, work.late)
            return bound.process(context, work.value, *bound.states)  # type: ignore[no-any-return]
        if not self._is_set(DOMAINS[timer.time], timer.at, work.key, timer.name):
            return None
        context.begin(work.key, timer.at, None, None, False, timer)
        context.timers.cancel(timer.name)
        found = bound.timers.get(timer.name) or bound.timers.get(None)
        if found is None:  # set by an earlier version of the service
            raise UnknownTimerError(self._definition.name, timer.name)
        handler, states = found
        return handler(context, timer, *states)  # type: ignore[no-any-return]

    def _settle(self, context: TaskContext, work: Work) -> None:
        """The handler finished."""
        try:
            if context.private is not None:
                context.rejoin()
            else:
                context.journal.settle()
            self._queue_timers(context)
        except DataError as error:
            self._failed(context, work, error)
            return
        if faults.armed:
            faults.fault_point("handler.after" if work.timer is None else "timer.fired")
        self._done(work)

    def _done(self, work: Work) -> None:
        """The work is dealt with, for good or ill: whatever waits behind it may go on."""
        if work.timer is not None:
            self.handled += 1
        if not work.sequence:
            return
        if work.record is not None:
            self.handled += 1
        self._order.finish(work)
        if self._order.runnable:
            self._urgent = True
        self._release_time()

    def _release_time(self) -> None:
        oldest = self._order.oldest
        while self._held and (oldest is None or self._held[0][0] < oldest):
            self._apply(self._held.popleft()[1])

    # -- waiting -----------------------------------------------------------------------------------------------------
    def _park(
        self, runner: Runner, context: TaskContext, coroutine: Coroutine[Any, Any, Any], yielded: Any, work: Work
    ) -> None:
        self._order.enlist(work)
        self._idle.remove((runner, context))
        self._parked += 1
        context.part()
        if self._definition.timeout is not None:
            work.deadline = self._loop.call_later(self._definition.timeout, self._time_out, runner, work)
        runner.take_over(coroutine, yielded, partial(self._unpark, runner, context, work))

    def _time_out(self, runner: Runner, work: Work) -> None:
        work.timed_out = True
        runner.cancel()

    def _unpark(self, runner: Runner, context: TaskContext, work: Work, error: BaseException | None) -> None:
        """A waiting handler has ended."""
        self._parked -= 1
        if work.deadline is not None:
            work.deadline.cancel()
            work.deadline = None
        if error is not None and work.timed_out:
            error = HandlerTimeoutError(self._definition.name, self._definition.timeout or 0)
        work.timed_out = False
        try:
            if error is None:
                self._settle(context, work)
            else:
                self._failed(context, work, error)
        except Exception as failure:
            self.failure = self.failure or failure
        self._idle.append((runner, context))
        self._wake()

    # -- failures ----------------------------------------------------------------------------------------------------
    def _unreadable(self, context: TaskContext, input_: Input, record: LogRecord, error: Exception) -> None:
        """A record that no handler ever sees."""
        context.begin(record.key or b"", record.timestamp, record, input_.source, False)
        if not isinstance(error, DataError):
            error = _why_unreadable(input_, record, error)
        self._failed(context, Work(record.key or b"", record.timestamp, False, input_, record, None), error)

    def _failed(self, context: TaskContext, work: Work, error: BaseException) -> None:
        """By policy: repeat, or give up in one of three ways. Raises if the way is to stop."""
        context.rollback()
        outcome = self._failures.decide(work, error, context)
        if outcome is Outcome.REPEAT:
            work.attempt += 1
            self._order.repeat(work, self._clock.monotonic() + self._failures.delay(work))
            return
        if work.timer is not None:  # it has fired, to no avail
            context.begin(work.key, work.timer.at, None, None, False, work.timer)
            context.timers.cancel(work.timer.name)
            context.journal.settle()
        self._done(work)


def _why_unreadable(input_: Input, record: LogRecord, error: Exception) -> DecodeError:
    if record.value is None:
        return DecodeError("the record has no value (it is a tombstone)")
    try:
        input_.codec.decode(record.value)
    except DecodeError as wrong:
        return wrong
    return DecodeError(f"the time or the key of the record cannot be found: {type(error).__name__}: {error}")
