"""Invokes handlers, one work item at a time: starts and parks them, settles their changes, handles their failures.

A handler that finishes without suspending is done when `send` returns. A handler that suspends is *parked*: its key
is busy, further work of that key queues up behind it (see `KeyOrder`), and its driver runs the rest of it, while other
keys are dispatched. A handler in a thread is parked until it returns.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

from tidegate import faults
from tidegate.engine.formats.actor_message import ActorMessage
from tidegate.engine.processing.context import TaskContext
from tidegate.engine.processing.coroutine_driver import FAILURES, CoroutineDriver
from tidegate.engine.processing.error_handler import ErrorHandler, FailureAction
from tidegate.engine.processing.input import Input
from tidegate.engine.processing.isolation import Blame
from tidegate.engine.processing.key_order import KeyOrder
from tidegate.engine.processing.operators.thread_call import ThreadCall
from tidegate.engine.processing.run_queue import RunQueue
from tidegate.engine.processing.work_item import WorkItem
from tidegate.engine.runtime.handler_threads import HandlerThreads
from tidegate.errors import DataError, DecodeError, HandlerTimeoutError, UnknownTimerError
from tidegate.functions.declaration.handler_call import BoundHandler
from tidegate.functions.declaration.handler_spec import MESSAGES
from tidegate.functions.definition import ServiceDefinition
from tidegate.logs.base import LogRecord
from tidegate.time.clock import Clock

__all__ = ("Invoker",)

logger = logging.getLogger(__name__)

_GRACE_SECONDS: Final = 5.0
"""How long a closing task waits for its handlers in threads."""


class Invoker:
    def __init__(
        self,
        definition: ServiceDefinition,
        number: int,
        order: KeyOrder,
        run_queue: RunQueue,
        clock: Clock,
        error_handler: ErrorHandler,
        new_context: Callable[[], TaskContext],
        wake: Callable[[], None],
        threads: HandlerThreads | None = None,
    ) -> None:
        """`threads`: the threads of the handlers; None: handlers run in the event loop."""
        self._definition, self._number = definition, number
        self._order, self._run_queue = order, run_queue
        self._clock, self._error_handler = clock, error_handler
        self._new_context, self._wake = new_context, wake
        self._loop = asyncio.get_running_loop()
        self._idle: list[tuple[CoroutineDriver, TaskContext]] = []
        self._drivers: list[CoroutineDriver] = []
        self._threads = threads
        self._calls: dict[ThreadCall, tuple[CoroutineDriver, TaskContext, WorkItem]] = {}
        """Handlers in threads, abandoned ones included."""
        execution = definition.execution
        self._max_running = execution.concurrency if threads is None else min(execution.concurrency, threads.size)
        self._abandoned = 0
        """Handlers that have timed out and still keep a thread busy."""
        self._parked = 0
        self.handled = 0
        """Records and timers that were finished since the last commit."""
        self.failure: BaseException | None = None
        """Why the task has failed."""
        self.latest: WorkItem | None = None
        """The last work item outside of the hot loop; the isolation steps reset it."""
        self.blamed: Blame | None = None
        """A work item that must not be handled again, since its results cannot be committed."""

    @property
    def waiting(self) -> bool:
        """Handlers are suspended or in threads: their end wakes the engine."""
        return self._parked > 0 or self.full

    @property
    def full(self) -> bool:
        """The limit of concurrent handlers is reached."""
        return self._parked + self._abandoned >= self._max_running

    @property
    def unfinished(self) -> int:
        """Number of records and timers that were started and are not finished."""
        return len(self._order.unfinished)

    def idle(self) -> tuple[CoroutineDriver, TaskContext]:
        """An idle driver and its context."""
        if not self._idle:
            driver = CoroutineDriver(self._loop, f"{self._definition.name}.{self._number}")
            self._drivers.append(driver)
            self._idle.append((driver, self._new_context()))
        return self._idle[-1]

    def end_slice(self) -> None:
        """The time slice is over: end the idle context, so that leftover asyncio tasks cannot access state."""
        if self._idle:
            self._idle[-1][1].end()

    async def close(self) -> None:
        """Cancel suspended handlers; their changes are discarded. Handlers in threads cannot be cancelled: they are
        abandoned, and get some time to end, since they may use resources that the service's `close` releases."""
        await asyncio.gather(*(driver.close() for driver in self._drivers))
        for call, (_, context, _) in self._calls.items():
            call.abandon()
            context.abandon()
        if self._calls:
            await asyncio.wait([call.ended for call in self._calls], timeout=_GRACE_SECONDS)
        running = sum(not call.ended.done() for call in self._calls)
        if running:
            logger.warning(
                "%s.%d: %d handlers still run in threads %g s after their task has closed; what they do is discarded",
                self._definition.name, self._number, running, _GRACE_SECONDS,
            )  # fmt: skip

    def fail(self, error: BaseException) -> None:
        """Fail the task. The first error is kept."""
        self.failure = self.failure or error

    # -- one work item -----------------------------------------------------------------------------------------------
    def perform(self, driver: CoroutineDriver, context: TaskContext, work: WorkItem) -> bool:
        """Handle a queued record, a retry, a message or a timer. False: its handler has suspended."""
        if faults.armed and work.timer is None:
            faults.fault_point("handler.before")
        self.latest = work
        try:
            if self.blamed is not None and self.blamed.names(work):
                work.attempt = sys.maxsize
                raise self.blamed.error
            if work.timer is not None and not self._run_queue.is_set(work.timer, work.key):
                self._done(work)  # it was cancelled or moved, or has fired
                return True
            handler, event = self._begin(context, work)
            if handler is not None and self._threads is not None:
                self._submit(
                    self._threads, driver, context, work, partial(handler.run, self._definition.name, context, event)
                )
                return False
            coroutine = None if handler is None else self._call(context, handler, event)
        except FAILURES as error:
            self.failed(context, work, error)
            return True
        if coroutine is None:
            self._settle(context, work)
            return True
        try:
            yielded = coroutine.send(None)
        except StopIteration:
            self._settle(context, work)
        except FAILURES as error:
            self.failed(context, work, error)
        else:
            self.park(driver, context, coroutine, yielded, work)
            return False
        return True

    def _call(self, context: TaskContext, handler: BoundHandler, event: Any) -> Coroutine[Any, Any, Any] | None:
        """Call the handler. Returns the coroutine of an async handler; None: the handler has finished."""
        message = context.message
        if handler.direct is None:
            coroutine = handler.function(context, event, *handler.states)
            return coroutine if message is None else self._deliver(context, coroutine, message)
        handler.run(self._definition.name, context, event)
        if message is not None:
            context.mail.complete(context, message)
        return None

    async def _deliver(self, context: TaskContext, coroutine: Coroutine[Any, Any, Any], message: ActorMessage) -> None:
        await coroutine
        context.mail.complete(context, message)

    def _begin(self, context: TaskContext, work: WorkItem) -> tuple[BoundHandler | None, Any]:
        """Set the context to this work item. Returns the handler and its event; without a handler the work item needs
        no call."""
        bound, timer = context.bound, work.timer
        source = work.input.source if work.input is not None else None
        context.message = None
        if timer is None:
            context.begin(work.key, work.timestamp, work.record, source, work.late)
            assert work.input is not None  # noqa: S101  it is a record
            if work.input.handler is MESSAGES:
                return context.mail.accept(context, work.value), work.value.message
            return bound.inputs[work.input.topic.name], work.value
        context.begin(work.key, timer.at, None, None, False, timer)
        context.timers.cancel(timer.name)
        handler = bound.timers.get(timer.name) or bound.timers.get(None)
        if handler is None:  # set by an earlier version of the service
            raise UnknownTimerError(self._definition.name, timer.name)
        return handler, timer

    def _settle(self, context: TaskContext, work: WorkItem) -> None:
        """The handler has finished: keep its changes."""
        try:
            if context.private is not None:
                context.reattach()
            else:
                context.journal.settle()
            self._run_queue.queue(context.timers_set)
        except DataError as error:
            self.failed(context, work, error)
            return
        if faults.armed:
            faults.fault_point("handler.after" if work.timer is None else "timer.fired")
        self._done(work)

    def _done(self, work: WorkItem) -> None:
        """Completes the item and releases its key."""
        if work.timer is not None:
            self.handled += 1
        if not work.sequence:
            return
        if work.record is not None:
            self.handled += 1
        self._order.finish(work)
        self._run_queue.finished()

    # -- waiting -----------------------------------------------------------------------------------------------------
    def park(
        self,
        driver: CoroutineDriver,
        context: TaskContext,
        coroutine: Coroutine[Any, Any, Any],
        yielded: Any,
        work: WorkItem,
    ) -> None:
        self._order.enlist(work)
        self._idle.remove((driver, context))
        self._parked += 1
        context.detach()
        if self._definition.execution.timeout is not None:
            work.deadline = self._loop.call_later(self._definition.execution.timeout, self._time_out, driver, work)
        driver.resume(coroutine, yielded, partial(self._unpark, driver, context, work))

    def _time_out(self, driver: CoroutineDriver, work: WorkItem) -> None:
        work.timed_out = True
        driver.cancel()

    def _unpark(
        self, driver: CoroutineDriver, context: TaskContext, work: WorkItem, error: BaseException | None
    ) -> None:
        """A parked handler has ended."""
        self._parked -= 1
        if work.deadline is not None:
            work.deadline.cancel()
            work.deadline = None
        if error is not None and work.timed_out:
            error = HandlerTimeoutError(self._definition.name, self._definition.execution.timeout or 0)
        work.timed_out = False
        try:
            if error is None:
                self._settle(context, work)
            else:
                self.failed(context, work, error)
        except Exception as failure:
            self.fail(failure)
        context.end()
        self._idle.append((driver, context))
        self._wake()

    # -- in threads --------------------------------------------------------------------------------------------------
    def _submit(
        self,
        threads: HandlerThreads,
        driver: CoroutineDriver,
        context: TaskContext,
        work: WorkItem,
        function: Callable[[], None],
    ) -> None:
        """Run the handler in a thread; it is parked until it returns."""
        name = f"{self._definition.name}.{self._number}: the handler of {work.where}"
        call = ThreadCall(name, function, driver.variables(), on_start=self._started, on_end=self._returned)
        context.detach(call.ask)
        context.preload()
        self._order.enlist(work)
        self._idle.remove((driver, context))
        self._parked += 1
        self._calls[call] = driver, context, work
        threads.submit(call.run)

    def _started(self, call: ThreadCall) -> None:
        """The timeout starts now: waiting for a thread does not count."""
        timeout = self._definition.execution.timeout
        if timeout is not None and not call.abandoned and not call.ended.done():
            _, _, work = self._calls[call]
            work.deadline = self._loop.call_later(timeout, self._abandon, call, timeout)

    def _abandon(self, call: ThreadCall, timeout: float) -> None:
        """The handler has timed out: the error policy decides about its work, and a new context replaces its own."""
        driver, context, work = self._calls[call]
        call.abandon()
        context.abandon()
        self._abandoned += 1
        logger.warning(
            "%s.%d: the handler of %s did not return within %g s. Its thread cannot be stopped and stays busy until it "
            "returns; what it does is discarded",
            self._definition.name, self._number, work.where, timeout,
        )  # fmt: skip
        error = HandlerTimeoutError(self._definition.name, timeout)
        self._unpark(driver, self._new_context(), work, error)

    def _returned(self, call: ThreadCall, error: BaseException | None) -> None:
        driver, context, work = self._calls.pop(call)
        if call.abandoned:
            self._abandoned -= 1
            self._wake()
            return
        try:
            if error is None and context.message is not None:
                context.mail.complete(context, context.message)
        except FAILURES as failure:
            error = failure
        if error is None or isinstance(error, FAILURES):
            self._unpark(driver, context, work, error)
        else:
            self.fail(error)
            self._wake()

    # -- failures ----------------------------------------------------------------------------------------------------
    def unreadable(self, context: TaskContext, input_: Input, record: LogRecord, error: Exception) -> None:
        """Let the error policy decide about a record that cannot be decoded."""
        context.begin(record.key or b"", record.timestamp, record, input_.source, False)
        if not isinstance(error, DataError):
            error = _why_unreadable(input_, record, error)
        self.failed(context, WorkItem(record.key or b"", record.timestamp, False, input_, record, None), error)

    def failed(self, context: TaskContext, work: WorkItem, error: BaseException) -> None:
        """Roll back and apply the error policy: retry the work or finish it. Raises if the policy is to stop."""
        context.rollback()
        outcome = self._error_handler.decide(work, error, context)
        if outcome is FailureAction.RETRY:
            work.attempt += 1
            self._order.retry(work, self._clock.monotonic() + self._error_handler.delay(work))
            return
        if work.timer is not None:  # it counts as fired
            context.begin(work.key, work.timer.at, None, None, False, work.timer)
            context.timers.cancel(work.timer.name)
            context.journal.settle()
        self._done(work)

    def refuse(self, input_: Input, record: LogRecord, error: DataError) -> None:
        """Let the error policy decide about a record without handling it again."""
        _, context = self.idle()
        context.begin(record.key or b"", record.timestamp, record, input_.source, False)
        work = WorkItem(record.key or b"", record.timestamp, False, input_, record, None)
        work.attempt = sys.maxsize
        self.failed(context, work, error)
        input_.position = record.offset + 1
        self.handled += 1


def _why_unreadable(input_: Input, record: LogRecord, error: Exception) -> DecodeError:
    try:
        input_.read(record.value)
    except DecodeError as wrong:
        return wrong
    return DecodeError(f"the time or the key of the record cannot be found: {type(error).__name__}: {error}")
