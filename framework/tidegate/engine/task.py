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
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from time import perf_counter, thread_time
from typing import Final

from tidegate.engine.barriers import Opened, opened_record
from tidegate.engine.caution import Caution, Steps
from tidegate.engine.commit import Committer
from tidegate.engine.context import STAMP_HEADER, Stamp, TaskContext
from tidegate.engine.dispatch import Dispatcher
from tidegate.engine.environment import Environment
from tidegate.engine.epochs import EpochScan
from tidegate.engine.evolving import evolve
from tidegate.engine.expiry import Expiry
from tidegate.engine.failures import FailureHandling
from tidegate.engine.inputs import Input
from tidegate.engine.mail import Mail
from tidegate.engine.markers import ChannelMark, CommitMarker, source_name
from tidegate.engine.outputs import Emitted, Output, beside
from tidegate.engine.plan import TaskPlan
from tidegate.engine.recovery import Recovered, recover
from tidegate.engine.resuming import resume_inputs, resume_time
from tidegate.engine.runs import without_older
from tidegate.engine.sender import Sender
from tidegate.engine.snapshots import Cut
from tidegate.engine.space import StateSpace
from tidegate.engine.telling import Telling
from tidegate.engine.timers import TimerQueue
from tidegate.errors import DataError
from tidegate.faults import fault_point
from tidegate.functions.context import TaskInfo
from tidegate.logs.base import Batch, LogRecord, NewRecord, TopicPartition, Writer
from tidegate.state.base import SnapshotStore
from tidegate.state.layout import EVENT, PROCESSING
from tidegate.time.clock import MAX_TIME, to_duration
from tidegate.time.progress import OutsideChannel, Progress, SenderChannel, TaskTime

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
    dispatcher: Dispatcher

    def __init__(self, plan: TaskPlan, environment: Environment, *, caution: Caution | None = None) -> None:
        """`caution`: the commit before was refused for what is in it."""
        self.plan, self._environment = plan, environment
        self._steps = None if caution is None else Steps(caution)
        self._careful = caution is not None
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
            name: Output(topic, environment.log.max_record_bytes, beside(self.definition, plan.number, topic))
            for name, topic in self.definition.outputs.items()
        }
        self._outputs = {**{output.topic.name: output for output in outputs.values()}, **outputs}
        self._default_first()
        self._emitted: list[Emitted] = []
        self._opened = copy.copy(self.definition.prototype)
        self._stamp = Stamp(environment.app, environment.run, plan.id)
        self._sender: Sender | None = None
        self._fresh = without_older(environment.app, plan.run, STAMP_HEADER)
        self._carried: dict[TopicPartition, int] = {}
        """Inputs that hold what was in flight when the run began, and are not read yet, with their ends."""
        self._scan = EpochScan(environment.app, environment.run)
        self._barrier = 0
        """The latest epoch that somebody wants this task to be in."""
        self._last_epoch: int | None = None
        """The task is to stop with this one: it begins nothing, and enters it when its handlers have ended."""
        self._drained_by = 0.0
        self._snapshots: set[asyncio.Future[None]] = set()
        """Those that are being written or uploaded."""
        self._commit_task: asyncio.Task[None] | None = None
        self._last_commit = self._clock.monotonic()
        self._last_flush = self._last_commit
        self._unflushed = False
        self._flushing: asyncio.Future[None] | None = None
        self._finish_committed = False
        self._settled = 0
        self.silent: list[TopicPartition] = []
        """Outside partitions from which nothing came for a while."""
        self._telling = Telling(
            plan.id, self._settings.progress_interval, self._last_commit, has_readers=plan.has_readers
        )
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
        """See `recovery`. Afterwards the input positions are known. If it fails, or is cancelled, nothing is left
        open."""
        async with AsyncExitStack() as opening:
            writer = await self._environment.log.writer(self.plan.transactional_id)
            opening.push_async_callback(writer.close)
            await self._environment.confirm_run()
            recovered = await recover(self.plan, self._environment)
            self.store = recovered.store
            opening.callback(self.store.close)
            schemas = await evolve(self.plan, recovered, writer, self._environment)
            await self._prepare(recovered.marker, writer)
            self._committer.also += schemas
            opening.pop_all()
        self.state = TaskState.RUNNING
        fault_point("recovery.marker")
        await self.commit(force=True, first=True)
        return recovered

    async def _prepare(self, marker: CommitMarker | None, writer: Writer) -> None:
        self._lineage = marker.lineage if marker is not None else uuid.uuid4().hex
        await resume_inputs(self.plan.id, self.inputs, marker, self._environment.log, self.metrics)
        await self._find_carried()
        if marker is not None:
            resume_time(self.time, marker)
            self._stamp.epoch = marker.epoch
        self._assemble(writer)
        self.dispatcher.epoch = self._stamp.epoch
        await self._find_sent()
        if self.definition.guarantee == "at_least_once":
            eager = await self._environment.log.writer()
            self._sender = Sender(eager, self._committer.sent, self._environment.wake)
        await self._open_function()

    async def _find_carried(self) -> None:
        carried = [source for source, input_ in self.inputs.items() if input_.topic.carried]
        ends = await self._environment.log.end_offsets(carried) if carried else {}
        self._carried = {source: end for source, end in ends.items() if self.inputs[source].position < end}

    async def _find_sent(self) -> None:
        """Whatever earlier lives have sent lies before the ends of today. Readers must come so far before they go by
        the time of this task: it knows its watermark at once, and they may lag behind."""
        if self.plan.has_outputs:
            targets = {target for output in self._outputs.values() for target in output.sources}
            mailboxes = [service.mailbox for service in self.plan.mailboxes.values() if service.mailbox is not None]
            targets |= {TopicPartition(box.name, number) for box in mailboxes for number in range(box.partitions)}
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
        self._mail = Mail(
            self.definition, self.plan.mailboxes, self.plan.replies, self._stamp, environment.log.max_record_bytes
        )
        failures = FailureHandling(self.definition, self.plan.dead_letters, self._stamp, self._mail, self.metrics)
        self._queues = queues
        self._writer = writer
        self._committer = Committer(
            self.plan, space, queues, self.store, writer, self._emitted, self.metrics, environment.commits, environment.turns
        )
        self.dispatcher = Dispatcher(
            self.definition, self.plan.number, space, self.time, queues, self._clock, failures,
            self._new_context, self._environment.wake,
        )  # fmt: skip
        self.dispatcher.blamed = None if self._steps is None else self._steps.caution.blamed
        self.dispatcher.resume(input_ for input_ in self.inputs.values() if input_.catching_up)
        self._expiry = Expiry(self.definition, space, self.time, self.dispatcher.busy)

    def _new_context(self) -> TaskContext:
        return TaskContext(
            self.definition, self.info, self._space, self._outputs, self._emitted, self._stamp,
            self._mail, self._clock, self.time, self._opened,
        )  # fmt: skip

    async def _open_function(self) -> None:
        if self._opened is not None:
            await self._opened.open(self.info)
        elif self.definition.on_open is not None:
            await self.definition.on_open(self.info)

    # -- records -----------------------------------------------------------------------------------------------------
    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        """From where to read. What was in flight when the run began comes first, so that each key's order is kept."""
        return {source: self.inputs[source].position for source in self._carried or self.inputs}

    @property
    def held(self) -> bool:
        """Other inputs, and the time that others tell, wait for what was in flight when the run began."""
        return bool(self._carried)

    @property
    def full(self) -> bool:
        """Enough is read ahead, or waits for handlers."""
        waiting = self.dispatcher.buffered + self.dispatcher.unfinished
        if self._steps is not None:
            waiting += len(self._steps)
        if self._sender is not None:
            waiting += self._sender.backlog
        return waiting >= self._settings.buffer_records

    def offer(self, batch: Batch) -> None:
        fault_point("input.read")
        input_ = self.inputs[batch.source]
        if self._fresh is not None and not input_.own:
            batch = batch._replace(records=self._fresh(batch.records))
        if self._steps is not None:
            self._steps.hold(input_, batch)
        else:
            self._take_up(input_, batch.records, batch.position)
        if self._carried and batch.position >= self._carried.get(batch.source, _NEVER):
            del self._carried[batch.source]

    def _take_up(self, input_: Input, records: Sequence[LogRecord], position: int) -> None:
        """What other tasks of this app have sent may be of a later epoch than this task is in."""
        if input_.outside:
            self.dispatcher.offer(input_, records, position)
            return
        for epoch, start, end in self._scan.parts(records):
            upto = position if end == len(records) else records[end].offset
            self.dispatcher.offer(input_, records[start:end], upto, epoch)

    def move_to(self, epoch: int, *, stop: bool = False) -> None:
        """A barrier: this task is to be in this epoch, or a later one. stop: and to handle nothing after it."""
        if not stop:
            self._barrier = max(self._barrier, epoch)
        elif self._last_epoch is None:
            self._last_epoch, self._drained_by = epoch, self._clock.monotonic() + self._settings.drain_seconds
            self._enter_last_epoch()

    def _enter_last_epoch(self) -> None:
        drained = not self.dispatcher.waiting_for_handlers or self._clock.monotonic() >= self._drained_by
        if self._last_epoch is not None and drained:
            self._barrier = max(self._barrier, self._last_epoch)

    def go_on(self) -> None:
        """The app does not stop after all."""
        self._last_epoch = None

    @property
    def stopped(self) -> bool:
        """It has entered the epoch with which it is to stop: nothing is committed any more."""
        return self._last_epoch is not None and self._stamp.epoch >= self._last_epoch

    def hear(self, progress: Progress) -> None:
        """A task upstream tells how far its time has come."""
        channel = self.time.senders.get(progress.sender)
        if channel is not None:
            channel.waiting.append(progress)
            self._take_in_progress()

    def _take_in_progress(self) -> None:
        if self._carried or self.epoch_due:  # a barrier comes before what is told in its epoch
            return
        if sum(channel.apply(self._reached) for channel in self.time.senders.values() if channel.waiting):
            self.dispatcher.time_moved()

    def _reached(self, source: TopicPartition) -> int | None:
        input_ = self.inputs.get(source)
        return None if input_ is None else input_.position

    def finish_input(self, source: TopicPartition) -> None:
        """Nothing more will come from this outside partition."""
        if not self._carried:
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
        self._enter_last_epoch()
        self._take_in_progress()
        self.silent = [
            source
            for source, channel in self.time.outside.items()
            if channel.silent(now) and not channel.idle and channel.watermark < MAX_TIME and self._caught_up(source)
        ]

    def let_idle(self, sources: Iterable[TopicPartition]) -> None:
        """These partitions are silent, and everything in them is read."""
        for source in sources:
            self.time.outside[source].idle = True
        self.dispatcher.time_moved()

    def _caught_up(self, source: TopicPartition) -> bool:
        if self._carried or self.dispatcher.buffered:
            return False
        return self.inputs[source].handled == self.inputs[source].position

    @property
    def ready(self) -> bool:
        if self.state is not TaskState.RUNNING or self._last_epoch is not None:
            return False
        if self._steps is None:
            return self.dispatcher.ready
        if self.committing or self.uncommitted or self.dispatcher.waiting_for_handlers or self.epoch_due:
            return False
        return self.dispatcher.ready or bool(self._steps)

    def run(self) -> None:
        """A slice of handlers."""
        started = thread_time()
        if self._steps is None:
            self.dispatcher.run(self._settings.slice_ms / 1000)
        else:
            self._step(self._steps)
        self._environment.metrics.slices.observe(thread_time() - started)
        self.raise_failure()

    def _step(self, steps: Steps) -> None:
        """One piece of work, which is then committed before the next one."""
        dispatcher = self.dispatcher
        dispatcher.latest = steps.trial = None
        if not dispatcher.ready:
            if steps.over(self.inputs, self.time.watermark):
                self._stop_stepping(steps)
                return
            input_, record, position = steps.next()
            if record is not None and self._too_new(input_, record):
                steps.put_back(input_, record, position)
                return
            error = None if record is None else steps.blames(input_, record)
            if record is not None and error is not None:
                dispatcher.refuse(input_, record, error)
            dispatcher.offer(input_, [record] if record is not None and error is None else [], position)
        dispatcher.run(0)

    def _stop_stepping(self, steps: Steps) -> None:
        self._steps = None
        while steps:
            input_, record, position = steps.next()
            self._take_up(input_, [] if record is None else [record], position)

    def _too_new(self, input_: Input, record: LogRecord) -> bool:
        """Whether the task must move to another epoch before it takes this record up."""
        self._barrier = max(self._barrier, 0 if input_.outside else self._scan.look_at(record))
        return self.epoch_due

    def send_out(self) -> None:
        """Outputs that need not wait for a commit leave now."""
        if self._sender is not None and self._emitted and not self.stopped:
            self.metrics.emitted.inc(len(self._emitted))
            self._sender.take(self._emitted)

    @property
    def refused(self) -> bool:
        """A commit cannot be made of what is in it: the task must be opened again, with caution."""
        return self.caution is not None

    @property
    def caution(self) -> Caution | None:
        """What the next life of this task must know. None: nothing, or that would not help."""
        error, steps = self.dispatcher.failure, self._steps
        if not isinstance(error, DataError):
            return None
        if steps is None:
            upto = {source: input_.position for source, input_ in self.inputs.items()}
            return Caution(upto=upto, watermark=self.time.watermark)
        blamed = steps.blame(self.dispatcher.latest, error)
        return None if blamed is None else replace(steps.caution, blamed=blamed)

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

    def commit_due(self, monotonic: float, interval: float, soonest: float) -> bool:
        """`interval`: since the last commit. `soonest`: the same, if somebody waits for a reply."""
        if self.state is not TaskState.RUNNING or self.committing or self.stopped:
            return False
        if self.epoch_due:
            return True
        if self._steps is not None and self.uncommitted:
            return True
        if len(self._emitted) + self._dirty >= self._settings.commit_changes:
            return True
        if self._mail.awaited and monotonic - self._last_commit >= soonest:
            return True
        return monotonic - self._last_commit >= interval and (self.uncommitted or self._expiry.due(monotonic))

    @property
    def epoch_due(self) -> bool:
        """The next commit is to move to another epoch, and to be made at once."""
        return max(self._barrier, self.dispatcher.next_epoch) > self._stamp.epoch

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
            await self._environment.turns.next()
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

    async def commit(self, *, force: bool = False, first: bool = False) -> None:
        """One commit, of everything that is finished. See `commit`. first: the task has just opened."""
        if self.stopped:
            return
        monotonic, now = self._clock.monotonic(), self._clock.now()
        if self._expiry.due(monotonic):
            self._expire()
        self._last_commit = monotonic
        if not force and not self.uncommitted and not self._dirty and not self.epoch_due:
            return
        started = perf_counter()
        self.metrics.handled.inc(self.dispatcher.handled)
        self.dispatcher.handled = 0
        self._finish_committed = self.finished
        self._mail.awaited = False
        progress = self._next_progress(monotonic)
        self.send_out()
        notices = [self._say_opened(now)] if first else []
        epoch = self._next_epoch()
        frozen = self._committer.freeze(self._marker(epoch), progress, now, notices)
        moved = self._enter_epoch(epoch)
        spent = perf_counter() - started
        if self._sender is not None:
            await self._sender.flushed()
        spent += await self._committer.commit(frozen)
        if moved:
            self._take_snapshot(frozen.marker)
        self.commit_cost = 0.7 * self.commit_cost + 0.3 * spent
        self._unflushed = True
        self._report()

    def _marker(self, epoch: int) -> CommitMarker:
        channels = {
            source_name(source): ChannelMark(watermark=channel.watermark, idle=channel.idle)
            for source, channel in self.time.outside.items()
        }
        for name, sender in self.time.senders.items():
            channels[name] = ChannelMark(watermark=sender.watermark, idle=sender.idle)
        return CommitMarker(
            lineage=self._lineage,
            run=self._environment.run,
            epoch=epoch,
            inputs={source_name(source): input_.mark for source, input_ in self.inputs.items()},
            watermark=self.time.watermark,
            channels=channels,
        )

    # -- epochs ------------------------------------------------------------------------------------------------------
    def _next_epoch(self) -> int:
        return max(self._barrier, self.dispatcher.next_epoch, self._stamp.epoch)

    def _enter_epoch(self, epoch: int) -> bool:
        """At the moment of the freeze: what is handled from here on, and what it emits, is of this epoch."""
        if epoch == self._stamp.epoch:
            return False
        self._stamp.epoch = epoch
        self.dispatcher.enter(epoch)
        self._environment.wake()
        return True

    def _take_snapshot(self, marker: CommitMarker) -> None:
        """Of the commit that has just been applied: nothing else has been since."""
        snapshots, position = self._environment.snapshots, self.store.position
        if not snapshots.wanted(marker.epoch) or position is None:
            return
        for before in self._snapshots:
            before.cancel()  # nobody waits for it any more: the leader begins one at a time
        if self.store.held:
            reason = f"its snapshot in the epoch before {marker.epoch} is not written yet"
            self._begin_snapshot(snapshots.give_up(self.plan, marker.epoch, reason))
            return
        self.store.hold()
        fault_point("snapshot.held")
        cut = Cut(
            plan=self.plan,
            epoch=marker.epoch,
            marker=marker,
            position=position,
            sent=dict(self._committer.sent),
            store=self.store,
        )
        self._begin_snapshot(snapshots.take(cut))

    def _begin_snapshot(self, work: Coroutine[None, None, None]) -> None:
        future = asyncio.ensure_future(work)
        self._snapshots.add(future)
        future.add_done_callback(self._snapshots.discard)

    @property
    def snapshotting(self) -> bool:
        return bool(self._snapshots)

    def _say_opened(self, now: int) -> NewRecord:
        return opened_record(self.plan.id, Opened(run=self._environment.run, epoch=self._stamp.epoch), now)

    def _next_progress(self, monotonic: float) -> Progress | None:
        if not self._progress_due():
            return None
        return self._telling.tell(self.dispatcher.passed, monotonic, idle=self.time.idle)

    def _progress_due(self) -> bool:
        if not self.plan.has_readers:
            return False
        return self._telling.due(
            self.dispatcher.passed, self._clock.monotonic(), idle=self.time.idle, last=self.finished
        )

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
        if self.state is not TaskState.RUNNING:
            return  # closed while others were flushed
        if self._unflushed and monotonic - self._last_flush >= self._settings.flush_seconds:
            self._last_flush, self._unflushed = monotonic, False
            fault_point("store.flush")
            self._flushing = asyncio.ensure_future(asyncio.to_thread(self.store.flush))
            await asyncio.shield(self._flushing)

    # -- closing -----------------------------------------------------------------------------------------------------
    async def close(self, *, commit: bool) -> None:
        """Wait for the commit that is under way, commit what is finished if asked to, cancel what waits."""
        if self.state is TaskState.CLOSED:
            return
        was, self.state = self.state, TaskState.CLOSED
        if was is TaskState.CREATED:
            return
        async with AsyncExitStack() as closing:  # in the opposite order, whatever fails, or if this is cancelled
            closing.callback(self.store.close)
            closing.push_async_callback(self._writer.close)
            if self._sender is not None:
                closing.push_async_callback(self._sender.close)
            closing.push_async_callback(self._close_function)
            closing.push_async_callback(self.dispatcher.close)
            for snapshot in self._snapshots:
                snapshot.cancel()
            for under_way in filter(None, (self._commit_task, self._flushing, *self._snapshots)):
                await asyncio.gather(under_way, return_exceptions=True)
            if commit and was is TaskState.RUNNING and self.dispatcher.failure is None:
                await self.commit()

    async def _close_function(self) -> None:
        if self._opened is not None:
            await self._opened.close()
        elif self.definition.on_close is not None:
            await self.definition.on_close(self.info)
