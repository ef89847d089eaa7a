"""The engine of a worker: opens the tasks, reads for them, lets them run, has them commit.

One coroutine works: slices of handlers, task after task, with a turn of the loop in between, and commits when they are
due. Beside it others read, one for each service: they offer batches to tasks, and stop for those that are full.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tidegate.engine.environment import Environment
from tidegate.engine.feed import Feed
from tidegate.engine.markers import decode_progress
from tidegate.engine.metrics import Metrics
from tidegate.engine.plan import Plan, TaskPlan
from tidegate.engine.recovery import Recovered
from tidegate.engine.stores import Stores
from tidegate.engine.task import Task
from tidegate.logs.base import Log, Reader, TopicPartition
from tidegate.settings import Settings
from tidegate.time.clock import Clock, SystemClock

__all__ = ("Engine", "TaskReport")

T = TypeVar("T")

logger = logging.getLogger(__name__)

_COMMIT_SHARE = 5
"""Commits take at most one part in so many of the loop: with many busy tasks the interval stretches."""
_MEASURE_SECONDS = 2.0
"""How often the lag is looked at."""
_TURNS = 20
"""Turns of the loop in which a handler ends that has nothing to wait for any more."""


@dataclass(frozen=True, kw_only=True)
class TaskReport:
    """What opening a task found."""

    task: str
    recovered: Recovered


class Engine:
    _shared: Environment

    def __init__(
        self,
        plan: Plan,
        log: Log,
        stores: Stores,
        settings: Settings,
        *,
        clock: Clock | None = None,
        run: str = "1",
        until_end: bool = False,
    ) -> None:
        self.plan, self.log, self.settings = plan, log, settings
        self.clock: Clock = clock or SystemClock()
        self.metrics = Metrics()
        self.stores, self.run_id = stores, run
        self.until_end = until_end
        self.tasks: dict[str, Task] = {}
        self._feeds: list[Feed] = []
        self._control: Reader | None = None
        self._ends: dict[TopicPartition, int] = {}
        self._awake = asyncio.Event()

    # -- starting and stopping ---------------------------------------------------------------------------------------
    async def start(self) -> list[TaskReport]:
        """Create the topics, open the tasks. The log is already started."""
        await self.log.create(self.plan.specs)
        return await self.open_tasks()

    async def open_tasks(self) -> list[TaskReport]:
        plans = self.plan.tasks
        self._shared = self._environment(plans)
        tasks = {plan.id: Task(plan, self._shared) for plan in plans}
        control = self.plan.control
        # From here on: every task tells its progress anew when it opens, and what it told in an earlier life is void.
        position = (await self.log.end_offsets([control]))[control]
        self._control = self.log.reader()
        self._control.assign({control: position})
        self.tasks = tasks
        opened = await _all(task.open() for task in tasks.values())
        for name in self.plan.services:
            own = [task for task in tasks.values() if task.definition.name == name]
            self._feeds.append(Feed(self.log.reader(), own))
        if self.until_end:
            await self._find_ends()
        return [TaskReport(task=name, recovered=recovered) for name, recovered in zip(tasks, opened, strict=True)]

    def _environment(self, plans: Sequence[TaskPlan]) -> Environment:
        return Environment(
            app=self.plan.app,
            run=self.run_id,
            log=self.log,
            stores=self.stores,
            settings=self.settings,
            clock=self.clock,
            metrics=self.metrics,
            wake=self.wake,
            cache_limit=max(1000, self.settings.cache_entries // 2 // max(1, len(plans))),
        )

    async def close_tasks(self, *, commit: bool) -> None:
        errors = await asyncio.gather(
            *(task.close(commit=commit) for task in self.tasks.values()), return_exceptions=True
        )
        for reader in (*(feed.reader for feed in self._feeds), *((self._control,) if self._control else ())):
            await reader.close()
        self._feeds, self._control, self.tasks, self._ends = [], None, {}, {}
        for error in errors:
            if isinstance(error, BaseException):
                raise error

    async def drain(self, seconds: float) -> None:
        """Let the handlers that are under way end, for so long at most. Nothing new is begun: `run` has ended."""
        deadline = time.monotonic() + seconds
        tasks = self.tasks.values()
        while any(task.dispatcher.waiting_for_handlers for task in tasks) and time.monotonic() < deadline:
            self._awake.clear()
            await self._pause(min(0.05, seconds))

    def wake(self) -> None:
        self._awake.set()

    # -- running -----------------------------------------------------------------------------------------------------
    async def run(self) -> None:
        """Until cancelled, until a task fails (its error is raised), or until the end of a bounded run."""
        reading = [self._read_forever(feed) for feed in self._feeds]
        others = (self._listen_forever(), self._flush_forever(), self._measure_forever())
        beside = [asyncio.ensure_future(coroutine) for coroutine in (*reading, *others)]
        for future in beside:
            future.add_done_callback(lambda _: self.wake())
        try:
            while not await self._at_end():
                for future in beside:
                    if future.done():
                        future.result()
                if not await self.work_once():
                    await self._rest()
        finally:
            for future in beside:
                future.cancel()
            await asyncio.gather(*beside, return_exceptions=True)

    async def _read_forever(self, feed: Feed) -> None:
        while True:
            await feed.read(timeout=0.5)
            self.wake()
            await asyncio.sleep(0)

    async def _listen_forever(self) -> None:
        while True:
            await self.listen(timeout=0.5)
            self.wake()

    async def _measure_forever(self) -> None:
        while True:
            await asyncio.sleep(_MEASURE_SECONDS)
            for task in list(self.tasks.values()):
                ends = await self.log.end_offsets(task.inputs)
                task.metrics.lag.set(sum(max(0, end - task.inputs[source].handled) for source, end in ends.items()))

    async def _flush_forever(self) -> None:
        """Write the stores to disk now and then, one at a time, in another thread: handling goes on."""
        while True:
            await asyncio.sleep(min(1.0, self.settings.flush_seconds / 2))
            for task in list(self.tasks.values()):
                await task.flush_store(self.clock.monotonic())

    async def listen(self, *, timeout: float) -> bool:
        """Pass on what tasks tell of their progress. False: nothing new."""
        assert self._control is not None  # noqa: S101  tasks are open
        heard = False
        for batch in await self._control.read(timeout=timeout):
            for record in batch.records:
                if record.key is None or record.value is None:
                    continue
                progress = decode_progress(record.key, record.value, self.run_id)
                if progress is not None:
                    heard = True
                    for task in self.tasks.values():
                        task.hear(progress)
        return heard

    async def read_once(self) -> bool:
        """Offer what the log has now. False: nothing new."""
        offered = [await feed.read(timeout=0) for feed in self._feeds]
        return any(offered)

    async def work_once(self, *, commits: bool = True) -> bool:
        """A slice of every task that has something to do, and the commits that are due. False: nothing to do."""
        self._awake.clear()
        busy = False
        now, monotonic = self.clock.now(), self.clock.monotonic()
        interval = self._interval()
        for name in self.tasks:
            if self.tasks[name].refused:
                await self._reopen(name)
            task = self.tasks[name]
            task.raise_failure()
            task.tick(now, monotonic)
            if task.silent:
                await self._let_idle(task)
            if task.ready:
                busy = True
                task.run()
                await asyncio.sleep(0)
            task.send_out()
            if commits and task.commit_due(monotonic, interval):
                task.start_commit()
        if self.until_end:
            self._finish_inputs()
        return busy

    async def _reopen(self, name: str) -> None:
        """A commit was refused for what is in it. Its records are handled again, and what each one leaves behind is
        checked, so that the one at fault is known: its service's error policy decides about it."""
        refused = self.tasks[name]
        logger.warning("%s: %s. Handling the records since the last commit again", name, refused.dispatcher.failure)
        await refused.close(commit=False)
        task = Task(refused.plan, self._shared, careful=True)
        await task.open()
        self.tasks[name] = task
        for feed in self._feeds:
            if feed.serves(refused):
                await feed.replace(task, self.log.reader())

    async def _let_idle(self, task: Task) -> None:
        """Silent partitions no longer hold time back, unless the log has something that nobody has read yet."""
        ends = await self.log.end_offsets(task.silent)
        task.let_idle([source for source, end in ends.items() if task.inputs[source].position >= end])

    def _interval(self) -> float:
        return max(self.settings.commit_interval, _COMMIT_SHARE * sum(t.commit_cost for t in self.tasks.values()))

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
            if not any(task.dispatcher.waiting_for_handlers for task in self.tasks.values()):
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
        return any([await task.commit_all() for task in self.tasks.values()])

    def advance_watermark(self, watermark: int) -> None:
        """Say of every outside partition that nothing up to this time will come any more."""
        for task in self.tasks.values():
            task.advance_watermark(watermark)

    def next_due(self) -> int | None:
        """In how many ms, by the clock, a timer or a repetition is due. None: there is none ahead."""
        now, monotonic = self.clock.now(), self.clock.monotonic()
        spans = [span for task in self.tasks.values() for span in task.dispatcher.due_in(now, monotonic)]
        return min((span for span in spans if span > 0), default=None)

    # -- a bounded run -----------------------------------------------------------------------------------------------
    async def _find_ends(self) -> None:
        outside = [source for task in self.tasks.values() for source in task.time.outside]
        self._ends = dict(await self.log.end_offsets(outside))
        for feed in self._feeds:
            feed.stop_at(self._ends)
        self._finish_inputs()

    def _finish_inputs(self) -> None:
        """Outside partitions that are read to the end which they had at the start: no more will come."""
        for task in self.tasks.values():
            for source in self._ends.keys() & task.time.outside.keys():
                if task.inputs[source].position >= self._ends[source]:
                    task.finish_input(source)

    async def _at_end(self) -> bool:
        """A bounded run: everything is read, handled and committed, and time is at its end."""
        if not self.until_end or not all(task.quiet for task in self.tasks.values()) or not await self._all_read():
            return False
        for task in self.tasks.values():
            task.finish_timeless()
        return all(task.finished and task.quiet for task in self.tasks.values())

    async def _all_read(self) -> bool:
        inputs = {source: input_ for task in self.tasks.values() for source, input_ in task.inputs.items()}
        ends = {**await self.log.end_offsets(source for source in inputs if source not in self._ends), **self._ends}
        return all(inputs[source].position >= end for source, end in ends.items())


async def _all(works: Iterable[Awaitable[T]]) -> list[T]:
    """Wait for all of them, also when one fails: what still runs would use what its failure makes others close."""
    outcomes = await asyncio.gather(*works, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
