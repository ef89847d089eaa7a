"""The engine of a worker: reads for its tasks, lets them run, has them commit.

One coroutine works: slices of handlers, task after task, with a turn of the loop in between, and commits when they are
due. Beside it others read, one for each service: they offer batches to tasks, and stop for those that are full. Which
tasks there are is the roster's business.
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
from tidegate.engine.worker.feed import Feed
from tidegate.engine.worker.monitor import Monitor
from tidegate.engine.worker.task_manager import TaskManager, TaskReport
from tidegate.errors import LogUnavailableError
from tidegate.logs.base import Log
from tidegate.logs.membership import Membership, SingleWorker
from tidegate.settings import Settings
from tidegate.time.clock import Clock, SystemClock

__all__ = ("Engine", "TaskReport")

logger = logging.getLogger(__name__)

_COMMIT_SHARE = 5
"""Commits take at most one part in so many of the loop: with many busy tasks the interval stretches."""
_AWAY_SECONDS = 0.5
"""How long to wait before a log that could not be reached is asked again."""
_LAST_SECONDS = 2.0
"""How long that may take when a worker stops."""
_ANSWER_SECONDS = 0.05
"""How long the work waits for the log's answer to a question of its own."""
_TURNS = 20
"""Turns of the loop in which a handler ends that has nothing to wait for any more."""


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
        self.commits = CommitListeners()
        """What the tasks here have committed, for those who listen."""
        self.stores, self.run_id = stores, plan.run.id
        self.until_end = until_end
        self.tasks: dict[str, Task] = {}
        """Those that run here and now."""
        self.membership: Membership = membership or SingleWorker()
        self._run_watch = RunWatch(log, plan.control, plan.run)
        self.snapshots: Snapshots = snapshots or NoSnapshots()
        self._turns = LoopScheduler()
        self._readers = ThreadPoolExecutor(1, thread_name_prefix="tidegate-prefetch")  # it begins when it is used
        self._roster = self._new_roster()
        self._feeds: dict[str, Feed] = {}
        self._listening = ControlListener(plan, log, self.tasks, self.snapshots, self.wake)
        self._bounded = BoundedRun(plan, log, self.tasks)
        self.watch = Monitor(plan, log, settings, self.clock, self.tasks, self._feeds, self.wake)
        self._awake = asyncio.Event()
        self._asking: dict[str, asyncio.Future[None]] = {}
        """By task: the log is asked whether its silent partitions are read to their ends."""

    # -- starting and stopping ---------------------------------------------------------------------------------------
    async def start(self) -> list[TaskReport]:
        """Create the topics, open the tasks. The log is already started."""
        self.plan.check_placement()
        await self.log.create(self.plan.specs)
        return await self.open_tasks()

    async def open_tasks(self) -> list[TaskReport]:
        """Those that are assigned here."""
        self._feeds.update({name: Feed(self.log.reader()) for name in self.plan.services})
        self._roster = self._new_roster()
        await asyncio.to_thread(self.stores.clear_left_behind)
        await self._listening.catch_up()
        if self.until_end:
            await self._find_ends()
        return await self._roster.start()

    def _new_roster(self) -> TaskManager:
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
            commits=self.commits,
            turns=self._turns,
            readers=self._readers,
            ages=RetentionCheck(self.plan.retentions if self.log.retention_by_timestamp else {}),
        )
        return TaskManager(self.plan, environment, self.membership, enter=self._enter, leave=self._leave)

    async def _find_ends(self) -> None:
        """Where the partitions end that are written from outside: what comes later is for the next run."""
        await self._bounded.find_ends()
        self.watch.ends = self._bounded.ends
        for feed in self._feeds.values():
            feed.stop_at(self._bounded.ends)

    def _enter(self, task: Task) -> None:
        self.tasks[task.plan.id] = task
        self._listening.tell(task)
        if self.until_end:
            self._bounded.finish_inputs(task)
        self._feeds[task.definition.name].add(task)
        self.wake()

    def _leave(self, task: Task) -> None:
        self.tasks.pop(task.plan.id, None)
        self.watch.forget(task)
        self._feeds[task.definition.name].remove(task)

    async def close_tasks(self, *, commit: bool) -> None:
        tasks = list(self.tasks.values())
        try:
            await self._roster.stop(commit=commit)
            if commit:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LAST_SECONDS):
                        await self.watch.publish(tasks)
        finally:
            for feed in self._feeds.values():
                await feed.reader.close()
            await self._listening.close()
            await self._run_watch.close()
            self._bounded.ends = {}
            self._feeds.clear()
            self.tasks.clear()
            for asking in self._asking.values():
                asking.cancel()
            self._asking.clear()

    @property
    def undone(self) -> Collection[str]:
        """Tasks that were closed without what they had finished being committed: it is done again."""
        return self._roster.undone

    async def drain(self, seconds: float) -> None:
        """Let the handlers that are under way end, for so long at most. Nothing new is begun: `run` has ended."""
        deadline = time.monotonic() + seconds
        tasks = self.tasks
        while any(task.handling.waiting for task in tasks.values()) and time.monotonic() < deadline:
            self._awake.clear()
            await self._pause(min(0.05, seconds))

    def wake(self) -> None:
        self._awake.set()

    # -- running -----------------------------------------------------------------------------------------------------
    async def run(self) -> None:
        """Until cancelled, until a task fails (its error is raised), or until the end of a bounded run."""
        reading = [self._read_forever(feed) for feed in self._feeds.values()]
        others = (
            self._roster.follow(),
            self._listen_forever(),
            self._flush_forever(),
            self.watch.measure_forever(),
            self.watch.publish_forever(),
            self.snapshots.run(),
        )
        beside = [asyncio.ensure_future(coroutine) for coroutine in (*reading, *others)]
        for future in beside:
            future.add_done_callback(lambda _: self.wake())
        try:
            while not await self._at_end():
                for future in beside:
                    if future.done():
                        future.result()
                if self._roster.failure is not None:
                    raise self._roster.failure
                if not await self.work_once():
                    await self._rest()
        except Exception as error:
            self._roster.failure = self._roster.failure or error
            raise
        finally:
            for future in beside:
                future.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
        if self.until_end and not self._listening.stopped:
            await self.snapshots.finish_bounded_run()

    async def _at_end(self) -> bool:
        """The app has stopped. Or a bounded run is over."""
        if self._listening.stopped:
            return True
        if not self.until_end or self._roster.unsettled:
            return False
        # While others were asked, a task of theirs may have become ours: it must come to its end here, too.
        return await self._bounded.is_over() and not self._roster.unsettled

    async def _read_forever(self, feed: Feed) -> None:
        while True:
            try:
                await feed.read(timeout=0.5)
            except LogUnavailableError as error:
                logger.warning("%s. Reading goes on when it is back", error)
                await asyncio.sleep(_AWAY_SECONDS)
            self.wake()
            await asyncio.sleep(0)

    async def _listen_forever(self) -> None:
        while True:
            try:
                await self.listen(timeout=0.5)
            except LogUnavailableError:  # the tasks' readers say so, too
                await asyncio.sleep(_AWAY_SECONDS)
            self.wake()

    async def _flush_forever(self) -> None:
        """Write the stores to disk now and then, one at a time, in another thread: handling goes on."""
        while True:
            await asyncio.sleep(min(1.0, self.settings.flush_seconds / 2))
            for task in list(self.tasks.values()):
                await task.flush_store(self.clock.monotonic())

    async def listen(self, *, timeout: float) -> bool:
        """Pass on what the control topic says. False: no task has told anything new."""
        return await self._listening.listen(timeout=timeout)

    async def read_once(self) -> bool:
        """Offer what the log has now. False: nothing new."""
        offered = [await feed.read(timeout=0) for feed in self._feeds.values()]
        return any(offered)

    async def work_once(self, *, commits: bool = True) -> bool:
        """A slice of every task that has something to do, and the commits that are due. False: nothing to do."""
        self._awake.clear()
        busy = False
        now, monotonic = self.clock.now(), self.clock.monotonic()
        soonest = _COMMIT_SHARE * sum(task.commit_cost for task in self.tasks.values())
        interval = max(self.settings.commit_interval, soonest)
        for task in list(self.tasks.values()):
            if self._failed(task):
                continue
            task.tick(now, monotonic)
            if task.timekeeper.silent:
                await self._let_idle(task)
            if task.ready:
                busy = True
                task.run()
                await self._turns.next()
            task.send_out()
            if commits and task.commit_due(monotonic, interval, soonest):
                task.start_commit()
        if self.until_end:
            for task in self.tasks.values():
                self._bounded.finish_inputs(task)
        return busy

    def _failed(self, task: Task) -> bool:
        """It runs no longer; what opening it again does not mend is raised."""
        if task.handling.failure is None:
            return task.plan.id not in self.tasks  # taken away while another one had its turn
        if not self._roster.mends(task):
            task.raise_failure()
        return True

    async def _let_idle(self, task: Task) -> None:
        """Silent partitions no longer hold time back, unless the log has something that nobody has read yet. If it does
        not answer soon, it does so beside the others' work: a broker that is away must not hold that up."""
        asking = self._asking.get(task.plan.id)
        if asking is None:
            asking = self._asking[task.plan.id] = asyncio.ensure_future(self._ask_for_idle(task))
            await asyncio.wait((asking,), timeout=_ANSWER_SECONDS)
        if asking.done():
            self._asking.pop(task.plan.id, None)
            asking.result()

    async def _ask_for_idle(self, task: Task) -> None:
        try:
            ends = await self.log.end_offsets(task.timekeeper.silent)
        except LogUnavailableError:
            return
        read = [source for source, end in ends.items() if task.inputs[source].position >= end]
        task.timekeeper.let_idle(read)

    async def _rest(self) -> None:
        """Until something happens, or the next thing may be due by the clock."""
        await self._pause(min(0.05, self.settings.commit_interval / 4))

    async def _pause(self, seconds: float) -> None:
        """Until woken, or so long."""
        handle = asyncio.get_running_loop().call_later(seconds, self.wake)
        try:
            await self._awake.wait()
        finally:
            handle.cancel()

    # -- step by step, for tests -------------------------------------------------------------------------------------
    async def settle(self, *, wait: bool = True, commit: bool = True) -> None:
        """Go on until nothing is left to do: everything is read, handled, committed, and passed on to other services.

        wait: also for handlers that are under way. commit: else what was handled stays uncommitted."""
        while True:
            moved = await self.read_once()
            moved = await self.listen(timeout=0) or moved
            moved = await self.work_once(commits=commit) or moved
            if moved or (commit and await self.commit_all()):
                continue
            if self._roster.unsettled:
                await self._roster.settled()
                continue
            if not any(task.handling.waiting for task in self.tasks.values()):
                return
            if not wait and not await self._woken_soon():
                return
            await self._awake.wait()

    async def _woken_soon(self) -> bool:
        """Whether a handler that need not wait any longer ends within a few turns of the loop."""
        for _ in range(_TURNS):
            if self._awake.is_set():
                return True
            await asyncio.sleep(0)
        return self._awake.is_set()

    async def commit_all(self) -> bool:
        """Have every task commit what is finished. False: there was nothing."""
        moved = False
        for task in list(self.tasks.values()):
            moved = await task.commit_all() or moved
            if task.refused:
                self._roster.mends(task)
        return moved

    async def commit_epochs(self) -> None:
        """Have those tasks commit that are to move to another epoch."""
        for task in list(self.tasks.values()):
            if task.epochs.due and not task.committing:
                await task.commit()

    def advance_watermark(self, watermark: int) -> None:
        """Say of every outside partition that nothing up to this time will come any more."""
        for task in self.tasks.values():
            task.timekeeper.advance_watermark(watermark)

    def next_due(self) -> int | None:
        """In how many ms, by the clock, a timer or a repetition is due. None: there is none ahead."""
        now, monotonic = self.clock.now(), self.clock.monotonic()
        spans = [span for task in self.tasks.values() for span in task.dispatcher.due_in(now, monotonic)]
        return min((span for span in spans if span > 0), default=None)
