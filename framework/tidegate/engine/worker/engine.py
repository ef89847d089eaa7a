"""The engine of a worker: runs its tasks and starts their commits.

One coroutine is the work loop: slices of handlers, task after task, each in its own turn of the event loop, and the
commits that are due. Beside it, one coroutine per service reads and offers batches to the tasks, with backpressure. The
task manager opens and closes tasks.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

from tidegate.engine.runtime.commit_listeners import CommitListeners
from tidegate.engine.runtime.environment import Environment
from tidegate.engine.runtime.loop_scheduler import LoopScheduler
from tidegate.engine.runtime.metrics import Metrics
from tidegate.engine.runtime.retention_check import RetentionCheck
from tidegate.engine.runtime.snapshots import NoSnapshots, Snapshots
from tidegate.engine.runtime.state_directory import StateDirectory
from tidegate.engine.task import Task
from tidegate.engine.topology.plan import Plan
from tidegate.engine.topology.run import RunWatch
from tidegate.engine.worker.bounded_run import BoundedRun
from tidegate.engine.worker.control_listener import ControlListener
from tidegate.engine.worker.monitor import Monitor
from tidegate.engine.worker.service_reader import ServiceReader
from tidegate.engine.worker.task_manager import TaskManager, TaskReport
from tidegate.errors import LogUnavailableError
from tidegate.logs.base import Log
from tidegate.logs.membership import Membership, SingleWorker
from tidegate.settings import Settings
from tidegate.time.clock import Clock, SystemClock

__all__ = ("Engine", "TaskReport")

logger = logging.getLogger(__name__)

_COMMIT_SHARE = 5
"""Commits take at most 1 / _COMMIT_SHARE of the event loop's time: with many busy tasks the interval grows."""
_RETRY_SECONDS = 0.5
"""Wait after the log was unavailable."""
_PUBLISH_SECONDS = 2.0
"""Limit for publishing the last positions when a worker stops."""
_IDLE_CHECK_SECONDS = 0.05
"""How long the work loop waits for the log's end offsets before it continues without them."""
_TURNS = 20
"""Turns of the event loop in which a handler ends that waits for nothing any more."""


class Engine:
    def __init__(
        self,
        plan: Plan,
        log: Log,
        stores: StateDirectory,
        settings: Settings,
        *,
        membership: Membership | None = None,
        clock: Clock | None = None,
        snapshots: Snapshots | None = None,
        until_end: bool = False,
    ) -> None:
        self.plan, self.log, self.settings = plan, log, settings
        self.clock: Clock = clock or SystemClock()
        self.metrics = Metrics()
        self.commit_listeners = CommitListeners()
        self.stores, self.run_id = stores, plan.run.id
        self.until_end = until_end
        self.tasks: dict[str, Task] = {}
        """The running tasks, by name."""
        self.membership: Membership = membership or SingleWorker()
        self._run_watch = RunWatch(log, plan.control, plan.run)
        self.snapshots: Snapshots = snapshots or NoSnapshots()
        self._loop_scheduler = LoopScheduler()
        self._prefetch_executor = ThreadPoolExecutor(1, thread_name_prefix="tidegate-prefetch")  # starts on first use
        self._task_manager = self._new_task_manager()
        self._readers: dict[str, ServiceReader] = {}
        """By service."""
        self._control_listener = ControlListener(plan, log, self.tasks, self.snapshots, self.wake)
        self._bounded_run = BoundedRun(plan, log, self.tasks)
        self.monitor = Monitor(plan, log, settings, self.clock, self.tasks, self._readers, self.wake)
        self._awake = asyncio.Event()
        self._idle_checks: dict[str, asyncio.Future[None]] = {}
        """By task: checks under way whether its silent partitions are read to their ends."""

    # -- starting and stopping ---------------------------------------------------------------------------------------
    async def start(self) -> list[TaskReport]:
        """Create the topics, open the tasks. The log is already started."""
        self.plan.check_placement()
        await self.log.create(self.plan.specs)
        return await self.open_tasks()

    async def open_tasks(self) -> list[TaskReport]:
        """Opens the tasks that are assigned to this worker."""
        self._readers.update({name: ServiceReader(self.log.reader()) for name in self.plan.services})
        self._task_manager = self._new_task_manager()
        await asyncio.to_thread(self.stores.clear_scratch)
        await self._control_listener.catch_up()
        if self.until_end:
            await self._find_ends()
        return await self._task_manager.start()

    def _new_task_manager(self) -> TaskManager:
        environment = Environment(
            app=self.plan.app,
            run=self.run_id,
            confirm_run=partial(self._run_watch.confirm, self.plan.app),
            log=self.log,
            stores=self.stores,
            snapshots=self.snapshots,
            settings=self.settings,
            clock=self.clock,
            metrics=self.metrics,
            wake=self.wake,
            cache_limit=max(1000, self.settings.cache_entries // 2 // max(1, len(self.plan.tasks))),
            commit_listeners=self.commit_listeners,
            loop_scheduler=self._loop_scheduler,
            prefetch_executor=self._prefetch_executor,
            retention_check=RetentionCheck(self.plan.retentions if self.log.retention_by_timestamp else {}),
        )
        return TaskManager(
            self.plan, environment, self.membership, on_running=self._add_task, on_stopped=self._remove_task
        )

    async def _find_ends(self) -> None:
        """The ends of outside partitions: later records are left to the next bounded run."""
        await self._bounded_run.find_ends()
        self.monitor.ends = self._bounded_run.ends
        for reader in self._readers.values():
            reader.stop_at(self._bounded_run.ends)

    def _add_task(self, task: Task) -> None:
        self.tasks[task.plan.id] = task
        self._control_listener.bring_up_to_date(task)
        if self.until_end:
            self._bounded_run.finish_inputs(task)
        self._readers[task.definition.name].add(task)
        self.wake()

    def _remove_task(self, task: Task) -> None:
        self.tasks.pop(task.plan.id, None)
        self.monitor.remove(task)
        self._readers[task.definition.name].remove(task)

    async def close_tasks(self, *, commit: bool) -> None:
        tasks = list(self.tasks.values())
        try:
            await self._task_manager.stop(commit=commit)
            if commit:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_PUBLISH_SECONDS):
                        await self.monitor.publish(tasks)
        finally:
            for reader in self._readers.values():
                await reader.reader.close()
            await self._control_listener.close()
            await self._run_watch.close()
            self._bounded_run.ends = {}
            self._readers.clear()
            self.tasks.clear()
            for check in self._idle_checks.values():
                check.cancel()
            self._idle_checks.clear()

    @property
    def uncommitted(self) -> Collection[str]:
        """Tasks that were closed with finished work that is not committed: it is repeated."""
        return self._task_manager.uncommitted

    async def drain(self, seconds: float) -> None:
        """Wait for running handlers, up to so many seconds. No new ones start, since `run` has ended."""
        deadline = time.monotonic() + seconds
        tasks = self.tasks
        while any(task.invoker.waiting for task in tasks.values()) and time.monotonic() < deadline:
            self._awake.clear()
            await self._sleep(min(0.05, seconds))

    def wake(self) -> None:
        self._awake.set()

    # -- running -----------------------------------------------------------------------------------------------------
    async def run(self) -> None:
        """Runs until it is cancelled, a task fails (raises its error), the app stops, or a bounded run is over."""
        reading = [self._read_forever(reader) for reader in self._readers.values()]
        others = (
            self._task_manager.follow(),
            self._poll_control_forever(),
            self._flush_forever(),
            self.monitor.measure_forever(),
            self.monitor.publish_forever(),
            self.snapshots.run(),
        )
        background = [asyncio.ensure_future(coroutine) for coroutine in (*reading, *others)]
        for future in background:
            future.add_done_callback(lambda _: self.wake())
        try:
            while not await self._at_end():
                for future in background:
                    if future.done():
                        future.result()
                if self._task_manager.failure is not None:
                    raise self._task_manager.failure
                if not await self.work_once():
                    await self._wait_for_work()
        except Exception as error:
            self._task_manager.failure = self._task_manager.failure or error
            raise
        finally:
            for future in background:
                future.cancel()
            await asyncio.gather(*background, return_exceptions=True)
        if self.until_end and not self._control_listener.stopped:
            await self.snapshots.finish_bounded_run()

    async def _at_end(self) -> bool:
        """The app has stopped, or a bounded run is over."""
        if self._control_listener.stopped:
            return True
        if not self.until_end or self._task_manager.opening:
            return False
        # During the check, the group may have assigned another worker's task to this one, which then must end here.
        return await self._bounded_run.is_over() and not self._task_manager.opening

    async def _read_forever(self, reader: ServiceReader) -> None:
        while True:
            try:
                await reader.read(timeout=0.5)
            except LogUnavailableError as error:
                logger.warning("%s. Reading resumes when the log is available again", error)
                await asyncio.sleep(_RETRY_SECONDS)
            self.wake()
            await asyncio.sleep(0)

    async def _poll_control_forever(self) -> None:
        while True:
            try:
                await self.poll_control(timeout=0.5)
            except LogUnavailableError:  # logged by the services' readers
                await asyncio.sleep(_RETRY_SECONDS)
            self.wake()

    async def _flush_forever(self) -> None:
        """Flush the stores to disk periodically, one at a time, in another thread: processing continues."""
        while True:
            await asyncio.sleep(min(1.0, self.settings.flush_seconds / 2))
            for task in list(self.tasks.values()):
                await task.flush_store(self.clock.monotonic())

    async def poll_control(self, *, timeout: float) -> bool:
        """Read and pass on records of the control topic. False: there was no new progress."""
        return await self._control_listener.poll(timeout=timeout)

    async def read_once(self) -> bool:
        """Offer the available records to the tasks. False: there were none."""
        offered = [await reader.read(timeout=0) for reader in self._readers.values()]
        return any(offered)

    async def work_once(self, *, commits: bool = True) -> bool:
        """Run a slice of every task that is ready, and start the commits that are due. False: no task was ready."""
        self._awake.clear()
        busy = False
        now, monotonic = self.clock.now(), self.clock.monotonic()
        soonest = _COMMIT_SHARE * sum(task.commit_cost for task in self.tasks.values())
        interval = max(self.settings.commit_interval, soonest)
        for task in list(self.tasks.values()):
            if self._failed(task):
                continue
            task.tick(now, monotonic)
            if task.watermark_tracker.silent:
                await self._mark_idle(task)
            if task.ready:
                busy = True
                task.run()
                await self._loop_scheduler.next()
            task.send_out()
            if commits and task.commit_due(monotonic, interval, soonest):
                task.start_commit()
        if self.until_end:
            for task in self.tasks.values():
                self._bounded_run.finish_inputs(task)
        return busy

    def _failed(self, task: Task) -> bool:
        """Whether the task does not run any more. Raises a failure that reopening the task cannot recover."""
        if task.invoker.failure is None:
            return task.plan.id not in self.tasks  # revoked during another task's slice
        if not self._task_manager.reopen(task):
            task.raise_failure()
        return True

    async def _mark_idle(self, task: Task) -> None:
        """Mark silent partitions idle, unless the log has unread records of them. If the log does not answer soon, the
        check continues in the background: an unreachable broker must not stop the work loop."""
        check = self._idle_checks.get(task.plan.id)
        if check is None:
            check = self._idle_checks[task.plan.id] = asyncio.ensure_future(self._check_idle(task))
            await asyncio.wait((check,), timeout=_IDLE_CHECK_SECONDS)
        if check.done():
            self._idle_checks.pop(task.plan.id, None)
            check.result()

    async def _check_idle(self, task: Task) -> None:
        try:
            ends = await self.log.end_offsets(task.watermark_tracker.silent)
        except LogUnavailableError:
            return
        read = [source for source, end in ends.items() if task.inputs[source].position >= end]
        task.watermark_tracker.let_idle(read)

    async def _wait_for_work(self) -> None:
        """Until the engine is woken, or a commit or a timer may be due."""
        await self._sleep(min(0.05, self.settings.commit_interval / 4))

    async def _sleep(self, seconds: float) -> None:
        """Until the engine is woken, at most so long."""
        handle = asyncio.get_running_loop().call_later(seconds, self.wake)
        try:
            await self._awake.wait()
        finally:
            handle.cancel()

    # -- step by step, for tests -------------------------------------------------------------------------------------
    async def settle(self, *, wait: bool = True, commit: bool = True) -> None:
        """Run until everything is read, processed, committed, and passed on to other services.

        wait: also wait for running handlers. commit: False leaves processed records uncommitted."""
        while True:
            moved = await self.read_once()
            moved = await self.poll_control(timeout=0) or moved
            moved = await self.work_once(commits=commit) or moved
            if moved or (commit and await self.commit_all()):
                continue
            if self._task_manager.opening:
                await self._task_manager.wait_until_open()
                continue
            if not any(task.invoker.waiting for task in self.tasks.values()):
                return
            if not wait and not await self._woken_soon():
                return
            await self._awake.wait()

    async def _woken_soon(self) -> bool:
        """Whether a handler ends within a few turns of the event loop."""
        for _ in range(_TURNS):
            if self._awake.is_set():
                return True
            await asyncio.sleep(0)
        return self._awake.is_set()

    async def commit_all(self) -> bool:
        """Commit the finished work of all tasks. False: there was none."""
        moved = False
        for task in list(self.tasks.values()):
            moved = await task.commit_all() or moved
            if task.refused:
                self._task_manager.reopen(task)
        return moved

    async def commit_epochs(self) -> None:
        """Commit the tasks that must move to another epoch."""
        for task in list(self.tasks.values()):
            if task.epochs.due and not task.committing:
                await task.commit()

    def advance_watermark(self, watermark: int) -> None:
        """Advance the watermarks of all outside partitions."""
        for task in self.tasks.values():
            task.watermark_tracker.advance_watermark(watermark)

    def next_due(self) -> int | None:
        """Milliseconds, by the clock, until the next timer or retry. None: there is none."""
        now, monotonic = self.clock.now(), self.clock.monotonic()
        spans = [span for task in self.tasks.values() for span in task.dispatcher.due_in(now, monotonic)]
        return min((span for span in spans if span > 0), default=None)
