"""A task: one service and one partition number. Its components and its lifecycle.

    CREATED ──open──▶ RUNNING ──close──▶ CLOSED
                         │
                         └──an error──▶ FAILED ──close──▶ CLOSED

The engine opens the task, offers it records, runs it in slices, and lets it commit. Data flows through this file from
top to bottom: `offer` → `run` → `commit`. Three components have modules of their own: the advance from epoch to epoch
(`EpochAlignment`), event time (`WatermarkTracker`), and the isolation after a refused commit (`IsolationSteps`).
"""

from __future__ import annotations

import asyncio
import enum
import logging
import uuid
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from time import thread_time
from typing import Final

from tidegate.engine.commit.committer import Committer
from tidegate.engine.commit.epoch_alignment import EpochAlignment
from tidegate.engine.commit.isolation_steps import IsolationSteps
from tidegate.engine.commit.recovery import Recovered, recover
from tidegate.engine.commit.resume import channel_marks, find_carried, find_sent, resume_inputs, resume_time
from tidegate.engine.event_time.watermark_tracker import WatermarkTracker, new_time
from tidegate.engine.formats.commit_marker import CommitMarker, source_name
from tidegate.engine.keyed_state.schema_migration import migrate_state
from tidegate.engine.keyed_state.state_backend import StateBackend
from tidegate.engine.keyed_state.timers import TimerQueue
from tidegate.engine.keyed_state.ttl_sweep import TtlSweep
from tidegate.engine.processing.at_least_once import AtLeastOnceSender
from tidegate.engine.processing.context import STAMP_HEADER, Stamp, TaskContext
from tidegate.engine.processing.dispatcher import Dispatcher
from tidegate.engine.processing.error_handler import ErrorHandler
from tidegate.engine.processing.function_lifecycle import FunctionLifecycle
from tidegate.engine.processing.input import Input
from tidegate.engine.processing.invocation import Invoker
from tidegate.engine.processing.isolation import Isolation
from tidegate.engine.processing.key_order import KeyOrder
from tidegate.engine.processing.mailbox import Mailbox
from tidegate.engine.processing.output import Emissions, outputs_by_name
from tidegate.engine.processing.prefetch import Prefetch
from tidegate.engine.processing.run_queue import RunQueue
from tidegate.engine.runtime.environment import Environment
from tidegate.engine.runtime.stopwatch import Stopwatch
from tidegate.engine.topology.plan import TaskPlan
from tidegate.engine.topology.run import without_older
from tidegate.errors import DataError
from tidegate.faults import fault_point
from tidegate.functions.context import TaskInfo
from tidegate.logs.base import Batch, LogRecord, TopicPartition, Writer
from tidegate.state.base import SnapshotStore
from tidegate.state.layout import EVENT, PROCESSING
from tidegate.state.write_buffer import WriteBuffer

__all__ = ("Task", "TaskState")

logger = logging.getLogger(__name__)

_NEVER: Final = 1 << 63


class TaskState(enum.Enum):
    CREATED = "created"
    RUNNING = "running"
    FAILED = "failed"
    CLOSED = "closed"


class Task:
    store: SnapshotStore
    invoker: Invoker
    dispatcher: Dispatcher
    epochs: EpochAlignment
    watermark_tracker: WatermarkTracker

    def __init__(self, plan: TaskPlan, environment: Environment, *, isolation: Isolation | None = None) -> None:
        """`isolation`: the previous commit was refused because of its contents. See `Isolation`."""
        self.plan, self._environment, self._isolation = plan, environment, isolation
        self.definition = plan.definition
        self.state = TaskState.CREATED
        self.info = TaskInfo(app=environment.app, service=plan.definition.name, number=plan.number)
        self.metrics = environment.metrics.of(plan.definition.name, plan.number)
        self._clock, self._settings = environment.clock, environment.settings
        self.time = new_time(plan)
        self.inputs: dict[TopicPartition, Input] = {
            source: Input(spec, source, self._clock, self.time) for spec, source in plan.inputs
        }
        self._outputs = outputs_by_name(plan.definition, plan.number, environment.log.max_record_bytes)
        self._emitted = Emissions()
        self._function = FunctionLifecycle(self.definition, self.info, environment.thread_pools)
        self._stamp = Stamp(environment.app, environment.run, plan.id)
        self._sender: AtLeastOnceSender | None = None
        self._fresh = without_older(environment.app, plan.run, STAMP_HEADER)
        self._carried: dict[TopicPartition, int] = {}
        """The end offsets of the inputs with records that were in flight when the run began, until they are read."""
        self._isolation_steps: IsolationSteps | None = None
        """Set while the task isolates the work item at fault in a refused commit."""
        self._commit_task: asyncio.Task[None] | None = None
        self._last_commit = self._clock.monotonic()
        self._last_flush = self._last_commit
        self._unflushed = False
        self._flushes = 0
        """The store's `flushes` when the task last read it. Snapshots count as flushes."""
        self._flushing: asyncio.Future[None] | None = None
        self._finish_committed = False
        self._commits_seen = 0
        """The number of commits at the end of the last `commit_all`."""
        self.commit_cost = 0.0
        """Moving average of the seconds of the event loop that a commit takes."""

    # -- opening -----------------------------------------------------------------------------------------------------
    async def open(self) -> Recovered:
        """Recover the task and set its input positions: see `recovery`. After a failure or a cancellation, everything
        that it has opened is closed."""
        async with AsyncExitStack() as opening:
            writer = await self._environment.log.writer(self.plan.transactional_id)
            opening.push_async_callback(writer.close)
            self._function.start()
            opening.callback(self._function.stop)
            await self._environment.confirm_run()
            recovered = await recover(self.plan, self._environment)
            self.store = recovered.store
            opening.callback(self.store.close)
            schemas = await migrate_state(self.plan, recovered.store, recovered.marker, writer, self._environment)
            await self._prepare(recovered.marker, writer)
            self._committer.extra_changes += schemas
            opening.pop_all()
        self.state = TaskState.RUNNING
        fault_point("recovery.marker")
        await self.commit(force=True, first=True)
        return recovered

    async def _prepare(self, marker: CommitMarker | None, writer: Writer) -> None:
        log = self._environment.log
        self._lineage = marker.lineage if marker is not None else uuid.uuid4().hex
        await resume_inputs(self.plan.id, self.inputs, marker, log, self.metrics)
        self._carried = await find_carried(self.inputs, log)
        if marker is not None:
            resume_time(self.time, marker)
            self._stamp.epoch = marker.epoch
        self._assemble(writer)
        self._committer.sent.update(await find_sent(self.plan, self._outputs.values(), log))
        if self.definition.execution.guarantee == "at_least_once":
            self._sender = AtLeastOnceSender(await log.writer(), self._committer.sent, self._environment.wake)
        await self._function.open()

    def _assemble(self, writer: Writer) -> None:
        """Create the components over the open store."""
        environment = self._environment
        backend = self._backend = StateBackend(
            self.definition,
            self.plan.number,
            self.store,
            limit=environment.cache_limit,
            largest=environment.log.max_record_bytes,
            check_encoding=self._isolation is not None,
        )
        queues = {domain: TimerQueue(self.store, domain) for domain in (EVENT, PROCESSING)}
        self._mail = Mailbox(
            self.definition, self.plan.mailboxes, self.plan.replies, self._stamp, environment.log.max_record_bytes
        )
        error_handler = ErrorHandler(self.definition, self.plan.dead_letters, self._stamp, self._mail, self.metrics)
        self._writer = writer
        self._committer = Committer(
            self.plan, backend, queues, self.store, writer, self._emitted, self.metrics,
            environment.commit_listeners, environment.loop_scheduler,
        )  # fmt: skip
        order = KeyOrder()
        run_queue = RunQueue(order, self.time, queues, backend.timers, self._clock.now())
        self.invoker = Invoker(
            self.definition, self.plan.number, order, run_queue, self._clock, error_handler,
            self._new_context, self._environment.wake, self._function.threads,
        )  # fmt: skip
        self.dispatcher = Dispatcher(
            self.definition, order, run_queue, self.invoker, self.time, self._new_prefetch(backend)
        )
        self.dispatcher.resume(input_ for input_ in self.inputs.values() if input_.catching_up)
        self.epochs = EpochAlignment(
            self.plan, environment, self._stamp, self.invoker, self.dispatcher, self.store, self._committer.sent
        )
        self.watermark_tracker = WatermarkTracker(
            self.plan, environment, self.time, self.inputs, self._carried, self.dispatcher, self.epochs
        )
        if self._isolation is not None:
            self._isolation_steps = IsolationSteps(
                self._isolation, self.inputs, self.time, self.invoker, self.dispatcher, self.epochs
            )
        self._ttl_sweep = TtlSweep(self.definition, backend, self.time, self.dispatcher.busy)

    def _new_prefetch(self, backend: StateBackend) -> Prefetch | None:
        cells, store, executor = backend.only_plain, self.store, self._environment.prefetch_executor
        if cells is None or executor is None or not isinstance(store, WriteBuffer):
            return None
        return Prefetch(cells, store, executor)

    def _new_context(self) -> TaskContext:
        return TaskContext(
            self.definition, self.info, self._backend, self._outputs, self._emitted, self._stamp,
            self._mail, self._clock, self.time, self._function.instance,
        )  # fmt: skip

    # -- records -----------------------------------------------------------------------------------------------------
    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        """The positions to read from. Records that were in flight when the run began are read first, to keep the order
        of each key."""
        return {source: self.inputs[source].position for source in self._carried or self.inputs}

    @property
    def held(self) -> bool:
        """Other inputs, and the progress of upstream tasks, wait for the records that were in flight when the run
        began."""
        return bool(self._carried)

    @property
    def ahead(self) -> int:
        """The number of records that are buffered: read, but not dispatched."""
        return self.dispatcher.buffered + (0 if self._isolation_steps is None else len(self._isolation_steps))

    @property
    def full(self) -> bool:
        """Backpressure: enough records are buffered, or have unfinished handlers."""
        waiting = self.ahead + self.invoker.unfinished
        if self._sender is not None:
            waiting += self._sender.backlog
        return waiting >= self._settings.buffer_records

    def offer(self, batch: Batch) -> None:
        fault_point("input.read")
        input_ = self.inputs[batch.source]
        if self._fresh is not None and not input_.single_run:
            batch = batch._replace(records=self._fresh(batch.records))
        if self._isolation_steps is not None:
            self._isolation_steps.add(input_, batch)
        else:
            self._take_up(input_, batch.records, batch.position)
        if self._carried and batch.position >= self._carried.get(batch.source, _NEVER):
            del self._carried[batch.source]

    def _take_up(self, input_: Input, records: Sequence[LogRecord], position: int) -> None:
        if input_.outside:
            self.dispatcher.offer(input_, records, position)
            return
        for epoch, start, end in self.epochs.split_by_epoch(records):
            upto = position if end == len(records) else records[end].offset
            self.dispatcher.offer(input_, records[start:end], upto, epoch)

    # -- handling ----------------------------------------------------------------------------------------------------
    def tick(self, now: int, monotonic: float) -> None:
        """Advance the clock: timers, retries, idle inputs, progress."""
        self.dispatcher.tick(now, monotonic)
        self.epochs.tick()
        self.watermark_tracker.tick(monotonic)

    @property
    def ready(self) -> bool:
        if self.state is not TaskState.RUNNING or self.epochs.stopping:
            return False
        if self._isolation_steps is None:
            return self.dispatcher.ready
        if self.committing or self.uncommitted or self.invoker.waiting or self.epochs.due:
            return False
        return self.dispatcher.ready or bool(self._isolation_steps)

    def run(self) -> None:
        """Run a slice of handlers."""
        started = thread_time()
        try:
            if self._isolation_steps is None:
                self.dispatcher.run(self._settings.slice_ms / 1000)
            else:
                self._step(self._isolation_steps)
        except BaseException:
            self.state = TaskState.FAILED
            raise
        self._environment.metrics.slices.observe(thread_time() - started)
        self.raise_failure()

    def _step(self, steps: IsolationSteps) -> None:
        """Run one work item, which is committed before the next one; after the last one, end the isolation."""
        if not steps.over:
            steps.run_next()
            return
        self._isolation_steps = None
        for input_, records, position in steps.drain():
            self._take_up(input_, records, position)

    def send_out(self) -> None:
        """Send the outputs of an at-least-once service, which do not wait for a commit."""
        if self._sender is not None and self._emitted and not self.epochs.stopped:
            self.metrics.emitted.inc(self._emitted.total)
            self._sender.take(self._emitted)

    # -- failures ----------------------------------------------------------------------------------------------------
    @property
    def refused(self) -> bool:
        """The commit was refused for its contents: the task must be reopened with isolation steps."""
        return self.isolation is not None

    @property
    def isolation(self) -> Isolation | None:
        """What the task must know when it is reopened. None: reopening it would not help."""
        error = self.invoker.failure
        if not isinstance(error, DataError):
            return None
        if self._isolation_steps is not None:
            return self._isolation_steps.isolation_after(error)
        positions = {source: input_.position for source, input_ in self.inputs.items()}
        return Isolation(upto=positions, watermark=self.time.watermark)

    def raise_failure(self) -> None:
        if self.invoker.failure is not None and not self.refused:
            self.state = TaskState.FAILED
            raise self.invoker.failure

    # -- commits -----------------------------------------------------------------------------------------------------
    @property
    def uncommitted(self) -> bool:
        """There is something to commit."""
        if self.invoker.handled or self._emitted:
            return True
        return self.watermark_tracker.progress_due or (self.watermark_tracker.finished and not self._finish_committed)

    @property
    def quiet(self) -> bool:
        """There is nothing to process or to commit, and no commit has failed."""
        if self.ready or self.committing or self.invoker.unfinished or self.invoker.failure is not None:
            return False
        return not self.uncommitted and not self._dirty

    def commit_due(self, monotonic: float, interval: float, soonest: float) -> bool:
        """`interval`: seconds between commits. `soonest`: the same, while a caller waits for a reply."""
        if self.state is not TaskState.RUNNING or self.committing or self.epochs.stopped:
            return False
        if self.epochs.due:
            return True
        if self._isolation_steps is not None and self.uncommitted:
            return True
        if self._emitted.total + self._dirty + self.dispatcher.combined >= self._settings.commit_changes:
            return True
        if self._mail.awaited and monotonic - self._last_commit >= soonest:
            return True
        if (
            self.watermark_tracker.finished
            and self.uncommitted
            and not (self.dispatcher.ready or self.invoker.unfinished)
        ):
            return True  # a bounded run is at its end here: others wait for this commit
        return monotonic - self._last_commit >= interval and (self.uncommitted or self._ttl_sweep.due(monotonic))

    @property
    def _dirty(self) -> int:
        return sum(len(cells.dirty) for cells in self._backend.all)

    @property
    def committing(self) -> bool:
        return self._commit_task is not None and not self._commit_task.done()

    def start_commit(self) -> None:
        """Commit in the background, while handlers run."""
        self._commit_task = asyncio.ensure_future(self._commit_or_fail())

    async def _commit_or_fail(self) -> None:
        try:
            await self._environment.loop_scheduler.next()
            if self.invoker.failure is None:  # a handler may have failed since this commit was due
                await self.commit()
        except Exception as error:
            self.invoker.fail(error)
        finally:
            self._environment.wake()

    async def commit_all(self) -> bool:
        """Commit until nothing is left to commit. False: there was nothing."""
        if self._commit_task is not None:
            await self._commit_task
        self.raise_failure()
        if self.refused:
            return True
        try:
            self._sweep_expired()
            await self.commit()
            while self._ttl_sweep.under_way:
                self._sweep_expired()
                await self.commit()
        except Exception as error:
            self.invoker.fail(error)
        self.raise_failure()
        before, self._commits_seen = self._commits_seen, self._committer.commits
        return self._commits_seen > before or self.refused

    async def commit(self, *, force: bool = False, first: bool = False) -> None:
        """Commit the effects of all finished handlers: see `Committer`. first: the task has just opened."""
        if self.epochs.stopped:
            return
        monotonic, now = self._clock.monotonic(), self._clock.now()
        if self._ttl_sweep.due(monotonic):
            self._sweep_expired()
        self._last_commit = monotonic
        if not force and not self.uncommitted and not self._dirty and not self.epochs.due:
            return
        watch = Stopwatch()
        await watch.measure(self._commit(now, monotonic, first=first))
        self.commit_cost = 0.7 * self.commit_cost + 0.3 * watch.seconds

    async def _commit(self, now: int, monotonic: float, *, first: bool) -> None:
        self.metrics.handled.inc(self.invoker.handled)
        self.invoker.handled = 0
        self._finish_committed = self.watermark_tracker.finished
        self._mail.awaited = False
        progress = self.watermark_tracker.next_progress(monotonic)
        self.dispatcher.flush()
        self.send_out()
        notices = [self.epochs.opened(now)] if first else []
        epoch = self.epochs.next
        frozen = self._committer.freeze(self._marker(epoch), progress, now, notices)
        moved = self.epochs.enter(epoch)
        if self._sender is not None:
            await self._sender.flushed()
        await self._committer.commit(frozen)
        self._environment.retention_check.check(self.definition.name, frozen.outputs, now)
        if moved:
            self.epochs.take_snapshot(frozen.marker)
        self._unflushed = True
        self._report()

    def _sweep_expired(self) -> None:
        removed = self._ttl_sweep.step(self._clock.now(), self._clock.monotonic())
        if removed:
            self.metrics.expired.inc(removed)

    def _marker(self, epoch: int) -> CommitMarker:
        return CommitMarker(
            lineage=self._lineage,
            run=self._environment.run,
            epoch=epoch,
            inputs={source_name(source): input_.mark for source, input_ in self.inputs.items()},
            watermark=self.time.watermark,
            channels=channel_marks(self.time),
        )

    def _report(self) -> None:
        self.metrics.watermark.set(self.time.watermark)
        self.metrics.waiting.set(self.invoker.unfinished)

    async def flush_store(self, monotonic: float) -> None:
        """Flush the store regularly, so that a crash leaves little to replay. A snapshot counts as a flush: additional
        flushes would only create more files to compact."""
        if self.state is not TaskState.RUNNING:
            return  # closed while others were flushed
        if self._flushes != self.store.flushes:
            self._last_flush, self._flushes = monotonic, self.store.flushes
        due = self._unflushed and monotonic - self._last_flush >= self._settings.flush_seconds
        if due and not self.store.held:
            self._last_flush, self._unflushed = monotonic, False
            fault_point("store.flush")
            self._flushing = asyncio.ensure_future(asyncio.to_thread(self.store.flush))
            await asyncio.shield(self._flushing)
            self._flushes = self.store.flushes

    # -- closing -----------------------------------------------------------------------------------------------------
    async def close(self, *, commit: bool) -> None:
        """Wait for the current commit, commit finished handlers if `commit` is set, and cancel unfinished ones. Both
        commits may begin a snapshot, which reads the store; so the store is closed after all snapshots have ended."""
        if self.state is TaskState.CLOSED:
            return
        previous, self.state = self.state, TaskState.CLOSED
        if previous is TaskState.CREATED:
            return
        async with AsyncExitStack() as closing:  # in the opposite order, whatever fails, or if this is cancelled
            closing.callback(self.store.close)
            closing.push_async_callback(self.epochs.end_snapshots)
            closing.push_async_callback(self._writer.close)
            if self._sender is not None:
                closing.push_async_callback(self._sender.close)
            closing.callback(self._function.stop)
            closing.push_async_callback(self._function.close)
            closing.push_async_callback(self.dispatcher.close)
            closing.push_async_callback(self.invoker.close)
            self.epochs.cancel_snapshots()
            for under_way in filter(None, (self._commit_task, self._flushing)):
                await asyncio.gather(under_way, return_exceptions=True)
            if commit and previous is TaskState.RUNNING and self.invoker.failure is None:
                await self.commit()
