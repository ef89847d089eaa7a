"""A task: one service, one partition number. Its parts, and its life.

    CREATED ──open──▶ RUNNING ──close──▶ CLOSED
                         │
                         └──an error──▶ FAILED ──close──▶ CLOSED

The engine opens it, offers it records, lets it run in slices, and asks it to commit; data flows through this file
from top to bottom: `offer` → `run` → `commit`.
"""

from __future__ import annotations

import asyncio
import copy
import enum
import logging
import uuid
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from time import perf_counter, thread_time

from tidegate.engine.commit import Committer
from tidegate.engine.context import Stamp, TaskContext
from tidegate.engine.dispatch import Dispatcher
from tidegate.engine.environment import Environment
from tidegate.engine.expiry import Expiry
from tidegate.engine.failures import FailureHandling
from tidegate.engine.inputs import Input
from tidegate.engine.markers import ChannelMark, CommitMarker, InputMark, source_name
from tidegate.engine.outputs import Emitted, Output
from tidegate.engine.plan import TaskPlan
from tidegate.engine.recovery import Recovered, recover
from tidegate.engine.sender import Sender
from tidegate.engine.space import StateSpace
from tidegate.engine.timers import TimerQueue
from tidegate.errors import DataError
from tidegate.faults import fault_point
from tidegate.functions.context import TaskInfo
from tidegate.logs.base import Batch, TopicPartition, Writer
from tidegate.state.base import Store
from tidegate.state.layout import EVENT, PROCESSING
from tidegate.time.clock import MAX_TIME, MIN_TIME, to_duration
from tidegate.time.progress import OutsideChannel, Progress, SenderChannel, TaskTime

__all__ = ("Task", "TaskState")

logger = logging.getLogger(__name__)


class TaskState(enum.Enum):
    CREATED = "created"
    RUNNING = "running"
    FAILED = "failed"
    CLOSED = "closed"


class Task:
    store: Store
    dispatcher: Dispatcher

    def __init__(self, plan: TaskPlan, environment: Environment, *, careful: bool = False) -> None:
        """`careful`: check after each record that what it changed can be committed."""
        self.plan, self._environment, self._careful = plan, environment, careful
        self.definition = plan.definition
        self.state = TaskState.CREATED
        self.info = TaskInfo(app=environment.app, service=plan.definition.name, number=plan.number)
        self.metrics = environment.metrics.of(plan.definition.name, plan.number)
        self._clock, self._settings = environment.clock, environment.settings
        self.time = self._new_time()
        self.inputs: dict[TopicPartition, Input] = {
            source: Input(topic, source, self._clock, self.time.outside.get(source)) for topic, source in plan.sources
        }
        outputs = {
            name: Output(topic, environment.log.max_record_bytes) for name, topic in self.definition.outputs.items()
        }
        self._outputs = {**{output.topic.name: output for output in outputs.values()}, **outputs}
        self._default_first()
        self._emitted: list[Emitted] = []
        self._opened = copy.copy(self.definition.prototype)
        self._stamp = Stamp(environment.app, environment.run, plan.id)
        self._sender: Sender | None = None
        self._commit_task: asyncio.Task[None] | None = None
        self._last_commit = self._clock.monotonic()
        self._last_flush = self._last_commit
        self._unflushed = False
        self._finish_committed = False
        self._settled = 0
        self.silent: list[TopicPartition] = []
        """Outside partitions from which nothing came for a while."""
        self._told: Progress | None = None
        self._told_at = self._last_commit - self._settings.progress_interval
        self.commit_cost = 0.0
        """Seconds of the loop that a commit takes, smoothed."""

    def _default_first(self) -> None:
        names = list(self.definition.outputs)
        self._outputs = {name: self._outputs[name] for name in (*names, *(set(self._outputs) - set(names)))}

    def _new_time(self) -> TaskTime:
        outside = {
            source: OutsideChannel(
                bound=topic.watermark.bound,
                generator=topic.watermark.generator(),
                idle_ms=None if topic.watermark.idle_after is None else to_duration(topic.watermark.idle_after),
            )
            for topic, source in self.plan.sources
            if topic.name in self.plan.outside
        }
        return TaskTime(outside, {sender: SenderChannel(sender=sender) for sender in self.plan.senders})

    # -- opening -----------------------------------------------------------------------------------------------------
    async def open(self) -> Recovered:
        """See `recovery`. Afterwards the input positions are known. If it fails, the store is not left open."""
        writer = await self._environment.log.writer(f"{self._environment.app}.{self.plan.id}")
        recovered = await recover(self.plan, self._environment)
        self.store = recovered.store
        try:
            await self._prepare(recovered.marker, writer)
        except BaseException:
            self.store.close()
            raise
        self.state = TaskState.RUNNING
        fault_point("recovery.marker")
        await self.commit(force=True)
        return recovered

    async def _prepare(self, marker: CommitMarker | None, writer: Writer) -> None:
        self._lineage = marker.lineage if marker is not None else uuid.uuid4().hex
        await self._find_positions(marker)
        self._assemble(writer)
        await self._find_sent()
        if self.definition.guarantee == "at_least_once":
            eager = await self._environment.log.writer()
            self._sender = Sender(eager, self._committer.sent, self._environment.wake)
        await self._open_function()

    async def _find_positions(self, marker: CommitMarker | None) -> None:
        starts = await self._environment.log.start_offsets(self.inputs)
        for source, input_ in self.inputs.items():
            start = starts[source]
            mark = marker.inputs.get(source_name(source)) if marker is not None else None
            mark = mark or InputMark(position=start)
            lost = mark.lost_below(start)
            if lost > 0:
                logger.error(
                    "%s: retention removed %d offsets of %s before they were read; going on from %d. "
                    "Keep the topic longer (retention=), or run the worker more often.",
                    self.plan.id, lost, source, start,
                )  # fmt: skip
                self.metrics.lost.inc(lost)
            input_.restore(mark.from_start(start))
        if marker is not None:
            self._restore_time(marker)

    def _restore_time(self, marker: CommitMarker) -> None:
        """A bounded run left time at its end; the next run starts without knowing any."""

        def known(watermark: int) -> int:
            return watermark if watermark < MAX_TIME else MIN_TIME

        self.time.watermark = known(marker.watermark)
        for source, channel in self.time.outside.items():
            channel.watermark = known(marker.channels.get(source_name(source), ChannelMark()).watermark)
        for name, sender in self.time.senders.items():
            sender.watermark = known(marker.channels.get(name, ChannelMark()).watermark)

    async def _find_sent(self) -> None:
        """Whatever earlier lives have sent lies before the ends of today. Readers must come so far before they go by
        the time of this task: it knows its watermark at once, and they may lag behind."""
        if self.plan.has_readers:
            targets = {target for output in self._outputs.values() for target in output.sources}
            self._committer.sent.update(await self._environment.log.end_offsets(targets))

    def _assemble(self, writer: Writer) -> None:
        """The parts, over the store that was opened."""
        environment = self._environment
        space = self._space = StateSpace(
            self.definition,
            self.plan.number,
            self.store,
            limit=environment.cache_limit,
            largest=environment.log.max_record_bytes,
            careful=self._careful,
        )
        queues = {domain: TimerQueue(self.store, domain) for domain in (EVENT, PROCESSING)}
        failures = FailureHandling(self.definition, self.plan.dead_letters, self._stamp, self.metrics)
        self._queues = queues
        self._writer = writer
        self._committer = Committer(self.plan, space, queues, self.store, writer, self._emitted, self.metrics)
        self.dispatcher = Dispatcher(
            self.definition, self.plan.number, space, self.time, queues, self._clock, failures,
            self._new_context, self._environment.wake,
        )  # fmt: skip
        self.dispatcher.resume(input_ for input_ in self.inputs.values() if input_.catching_up)
        self._expiry = Expiry(self.definition, space, self.time, self.dispatcher.busy)

    def _new_context(self) -> TaskContext:
        return TaskContext(
            self.definition, self.info, self._space, self._outputs, self._emitted, self._stamp,
            self._clock, self.time, self._opened,
        )  # fmt: skip

    async def _open_function(self) -> None:
        if self._opened is not None:
            await self._opened.open(self.info)
        elif self.definition.on_open is not None:
            await self.definition.on_open(self.info)

    # -- records -----------------------------------------------------------------------------------------------------
    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        """From where to read."""
        return {source: input_.position for source, input_ in self.inputs.items()}

    @property
    def full(self) -> bool:
        """Enough is read ahead, or waits for handlers."""
        waiting = self.dispatcher.buffered + self.dispatcher.unfinished
        if self._sender is not None:
            waiting += self._sender.backlog
        return waiting >= self._settings.buffer_records

    def offer(self, batch: Batch) -> None:
        fault_point("input.read")
        self.dispatcher.offer(self.inputs[batch.source], batch.records, batch.position)

    def hear(self, progress: Progress) -> None:
        """A task upstream tells how far its time has come."""
        channel = self.time.senders.get(progress.sender)
        if channel is not None:
            channel.waiting.append(progress)
            self._take_in_progress()

    def _take_in_progress(self) -> None:
        if sum(channel.apply(self._reached) for channel in self.time.senders.values() if channel.waiting):
            self.dispatcher.time_moved()

    def _reached(self, source: TopicPartition) -> int | None:
        input_ = self.inputs.get(source)
        return None if input_ is None else input_.position

    def finish_input(self, source: TopicPartition) -> None:
        """Nothing more will come from this outside partition."""
        self.time.finish(source)
        self.dispatcher.time_moved()

    def advance_watermark(self, watermark: int) -> None:
        """Nothing up to this time will come any more from outside."""
        for source in self.time.outside:
            self.time.advance(source, watermark)
        self.dispatcher.time_moved()

    # -- handling ----------------------------------------------------------------------------------------------------
    def tick(self, now: int, monotonic: float) -> None:
        """The clock has moved: timers, repetitions, idleness, progress."""
        self.dispatcher.tick(now, monotonic)
        self._take_in_progress()
        self.silent = [
            source
            for source, channel in self.time.outside.items()
            if channel.silent(now) and not channel.idle and self._caught_up(source)
        ]

    def let_idle(self, sources: Iterable[TopicPartition]) -> None:
        """These partitions are silent, and everything in them is read."""
        for source in sources:
            self.time.outside[source].idle = True
        self.dispatcher.time_moved()

    def _caught_up(self, source: TopicPartition) -> bool:
        return self.dispatcher.buffered == 0 and self.inputs[source].handled == self.inputs[source].position

    @property
    def ready(self) -> bool:
        return self.state is TaskState.RUNNING and self.dispatcher.ready

    def run(self) -> None:
        """A slice of handlers."""
        started = thread_time()
        self.dispatcher.run(self._settings.slice_ms / 1000)
        self._environment.metrics.slices.observe(thread_time() - started)
        self.raise_failure()

    def send_out(self) -> None:
        """Outputs that need not wait for a commit leave now."""
        if self._sender is not None and self._emitted:
            self.metrics.emitted.inc(len(self._emitted))
            self._sender.take(self._emitted)

    @property
    def refused(self) -> bool:
        """A commit cannot be made of what is in it, and nobody knows yet which record is at fault."""
        return isinstance(self.dispatcher.failure, DataError) and not self._careful

    def raise_failure(self) -> None:
        if self.dispatcher.failure is not None and not self.refused:
            self.state = TaskState.FAILED
            raise self.dispatcher.failure

    # -- commits -----------------------------------------------------------------------------------------------------
    @property
    def uncommitted(self) -> bool:
        """There is something that a commit would change."""
        if self.dispatcher.handled or self._emitted:
            return True
        return self._progress_due() or (self.finished and not self._finish_committed)

    def commit_due(self, monotonic: float, interval: float) -> bool:
        if self.state is not TaskState.RUNNING or self.committing:
            return False
        if len(self._emitted) + self._dirty >= self._settings.commit_changes:
            return True
        return monotonic - self._last_commit >= interval and (self.uncommitted or self._expiry.due(monotonic))

    @property
    def _dirty(self) -> int:
        return sum(len(cells.dirty) for cells in self._space.all)

    @property
    def committing(self) -> bool:
        return self._commit_task is not None and not self._commit_task.done()

    def start_commit(self) -> None:
        """Commit in the background; handling goes on meanwhile."""
        self._commit_task = asyncio.ensure_future(self._commit_or_fail())

    async def _commit_or_fail(self) -> None:
        try:
            if self.dispatcher.failure is None:  # a handler may have failed since this commit was due
                await self.commit()
        except Exception as error:
            self.dispatcher.failure = self.dispatcher.failure or error
        finally:
            self._environment.wake()

    async def commit_all(self) -> bool:
        """Commit until nothing is left that a commit would change. False: there was nothing."""
        if self._commit_task is not None:
            await self._commit_task
        self.raise_failure()
        if self.refused:
            return True
        try:
            self._expire()
            await self.commit()
            while self._expiry.under_way:
                self._expire()
                await self.commit()
        except Exception as error:
            self.dispatcher.failure = self.dispatcher.failure or error
        self.raise_failure()
        before, self._settled = self._settled, self._committer.commits
        return self._settled > before or self.refused

    async def commit(self, *, force: bool = False) -> None:
        """One commit, of everything that is finished. See `commit`."""
        monotonic, now = self._clock.monotonic(), self._clock.now()
        if self._expiry.due(monotonic):
            self._expire()
        self._last_commit = monotonic
        if not force and not self.uncommitted and not self._dirty:
            return
        started = perf_counter()
        self.metrics.handled.inc(self.dispatcher.handled)
        self.dispatcher.handled = 0
        self._finish_committed = self.finished
        progress = self._next_progress(monotonic)
        self.send_out()
        frozen = self._committer.freeze(self._marker(), progress, now)
        spent = perf_counter() - started
        if self._sender is not None:
            await self._sender.flushed()
        spent += await self._committer.commit(frozen)
        self.commit_cost = 0.7 * self.commit_cost + 0.3 * spent
        self._unflushed = True
        self._report()

    def _marker(self) -> CommitMarker:
        channels = {
            source_name(source): ChannelMark(watermark=channel.watermark, idle=channel.idle)
            for source, channel in self.time.outside.items()
        }
        for name, sender in self.time.senders.items():
            channels[name] = ChannelMark(watermark=sender.watermark, idle=sender.idle)
        return CommitMarker(
            lineage=self._lineage,
            run=self._environment.run,
            epoch=self._stamp.epoch,
            inputs={source_name(source): input_.mark for source, input_ in self.inputs.items()},
            watermark=self.time.watermark,
            channels=channels,
        )

    def _next_progress(self, monotonic: float) -> Progress | None:
        if not self._progress_due():
            return None
        self._told = self._progress()
        self._told_at = monotonic
        return self._told

    def _progress(self) -> Progress:
        return Progress(sender=self.plan.id, watermark=self.dispatcher.passed, idle=self.time.idle, sent={})

    def _progress_due(self) -> bool:
        """Time has moved on since the readers downstream were told, and long enough ago, or for the last time."""
        if not self.plan.has_readers:
            return False
        progress, told = self._progress(), self._told
        if progress == told or (told is None and progress.watermark == MIN_TIME and not progress.idle):
            return False
        waited = self._clock.monotonic() - self._told_at >= self._settings.progress_interval
        awake = told is not None and told.idle and not progress.idle
        return waited or awake or self.finished

    @property
    def finished(self) -> bool:
        """A bounded run: time has come to its end."""
        return self.time.watermark >= MAX_TIME

    def finish_timeless(self) -> None:
        """A bounded run is over for a task that nobody tells the time: it has only what comes back to it."""
        if self.time.timeless and not self.finished:
            self.time.end = MAX_TIME
            self.dispatcher.time_moved()

    @property
    def quiet(self) -> bool:
        """Nothing is left to be handled or committed."""
        if self.ready or self.committing or self.dispatcher.unfinished:
            return False
        return not self.uncommitted and not self._dirty

    def _expire(self) -> None:
        removed = self._expiry.step(self._clock.now(), self._clock.monotonic())
        if removed:
            self.metrics.expired.inc(removed)

    def _report(self) -> None:
        self.metrics.watermark.set(self.time.watermark)
        self.metrics.waiting.set(self.dispatcher.unfinished)

    async def flush_store(self, monotonic: float) -> None:
        """Now and then, so that little must be replayed after a crash."""
        if self._unflushed and monotonic - self._last_flush >= self._settings.flush_seconds:
            self._last_flush, self._unflushed = monotonic, False
            fault_point("store.flush")
            await asyncio.to_thread(self.store.flush)

    # -- closing -----------------------------------------------------------------------------------------------------
    async def close(self, *, commit: bool) -> None:
        """Wait for the commit that is under way, commit what is finished if asked to, cancel what waits."""
        if self.state is TaskState.CLOSED:
            return
        was, self.state = self.state, TaskState.CLOSED
        if was is TaskState.CREATED:
            return
        if self._commit_task is not None:
            await asyncio.gather(self._commit_task, return_exceptions=True)
        async with AsyncExitStack() as closing:  # in the opposite order, whatever fails
            closing.callback(self.store.close)
            closing.push_async_callback(self._writer.close)
            if self._sender is not None:
                closing.push_async_callback(self._sender.close)
            closing.push_async_callback(self._close_function)
            closing.push_async_callback(self.dispatcher.close)
            if commit and was is TaskState.RUNNING and self.dispatcher.failure is None:
                await self.commit()

    async def _close_function(self) -> None:
        if self._opened is not None:
            await self._opened.close()
        elif self.definition.on_close is not None:
            await self.definition.on_close(self.info)
