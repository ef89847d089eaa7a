"""The tasks that run here: opened when they are assigned, closed when they are taken away, opened again when they fail.

Each assigned task has a keeper, a coroutine that lives as long as the assignment:

1. Open the task. A log that cannot be reached, or a fence, is a reason to try again; any other error ends the worker.
2. Let it run, until it fails in a way that opening it again mends: its last commit is then read from the log.
3. Close it. Before a task that was fenced is opened again, the group must assign it anew, or confirm that it is still
   ours: a worker that slept through a rebalance must not fence the one that took over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from tidegate.engine.commit.recovery import Recovered
from tidegate.engine.runtime.environment import Environment
from tidegate.engine.task import Task, TaskState
from tidegate.engine.topology.plan import Plan, TaskPlan
from tidegate.errors import DataError, FencedError, LogUnavailableError, OffsetOutOfRangeError
from tidegate.faults import fault_point
from tidegate.logs.base import TopicPartition
from tidegate.logs.membership import Membership, SingleWorker

__all__ = ("TaskManager", "TaskReport")

logger = logging.getLogger(__name__)

MENDABLE: Final = (FencedError, LogUnavailableError, OffsetOutOfRangeError)
"""What opening a task again mends: it takes its positions and its state from the log."""
_AT_ONCE: Final = 16
"""How many tasks are opened at the same time: each holds connections and memory while it replays."""
_SHORTEST: Final = 0.1
_LONGEST: Final = 5.0
"""Seconds before the next attempt: twice as many each time."""


@dataclass(frozen=True, kw_only=True)
class TaskReport:
    """What opening a task found."""

    task: str
    recovered: Recovered


@dataclass(kw_only=True, eq=False)
class _Keeper:
    plan: TaskPlan
    opened: asyncio.Future[TaskReport]
    """The first time."""
    failed: asyncio.Event = field(default_factory=asyncio.Event)
    work: asyncio.Task[None] | None = None
    running: bool = False
    ending: bool = False
    """The task was taken away, or is to end."""


class TaskManager:
    def __init__(
        self,
        plan: Plan,
        environment: Environment,
        membership: Membership,
        *,
        enter: Callable[[Task], None],
        leave: Callable[[Task], None],
    ) -> None:
        """`enter` and `leave`: a task begins, or ceases, to take part in the engine's work."""
        self._environment, self._membership = environment, membership
        self._enter, self._leave = enter, leave
        self._plans: Mapping[TopicPartition, TaskPlan] = {task.changelog: task for task in plan.tasks}
        self._keepers: dict[str, _Keeper] = {}
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._commit_at_end = True
        self._changed = asyncio.Event()
        self.failure: BaseException | None = None
        """What no new opening mends: it ends the worker."""
        self.undone: set[str] = set()
        """Tasks that were stopped with work that is not committed: it is done again."""

    # -- following the assignment ------------------------------------------------------------------------------------
    async def start(self) -> list[TaskReport]:
        """Join, and open what is assigned. Raises the first error; the others are waited for all the same."""
        stores = self._environment.stores
        own = {(plan.definition.name, plan.number): task for task, plan in self._plans.items()}
        # Whoever gets the control topic's partition coordinates checkpoints: see `checkpoints.coordinator`.
        tasks = (*self._plans, *({plan.control for plan in self._plans.values()}))
        await self._membership.join(tasks, lambda: [own[known] for known in stores.present() if known in own])
        await self.reconcile()
        following = asyncio.create_task(self.follow())  # the group may change its mind while all this is restored
        try:
            await self._opened(following)
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
        for keeper in self._keepers.values():
            if not keeper.opened.cancelled() and (failure := keeper.opened.exception()) is not None:
                raise failure
        return [keeper.opened.result() for keeper in self._keepers.values() if not keeper.opened.cancelled()]

    async def _opened(self, following: asyncio.Task[None]) -> None:
        """Wait until each task that is ours by now was opened, or cannot be."""
        while waiting := [keeper.opened for keeper in self._keepers.values() if not keeper.opened.done()]:
            pending: list[asyncio.Future[Any]] = [*waiting, following]
            await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            if following.done():
                following.result()

    async def follow(self) -> None:
        """Do as the group says, for ever."""
        while True:
            generation = self._membership.generation
            await self.reconcile()
            await self._membership.changed(generation)

    async def reconcile(self) -> None:
        """Begin to open what is ours, give up what is not. Neither is waited for, but nothing is opened twice."""
        owned = {plan.id: plan for task, plan in self._plans.items() if task in self._membership.owned}
        gone = [keeper for name, keeper in self._keepers.items() if keeper.ending or name not in owned]
        if lost := [keeper.plan.id for keeper in gone if not keeper.ending]:
            logger.info("taken over by others: %s", _names(lost))
        await self._end(gone)
        new = [plan for name, plan in owned.items() if name not in self._keepers]
        if new and not isinstance(self._membership, SingleWorker):  # who has no others need not say what is whose
            logger.info("assigned: %s", _names(plan.id for plan in new))
        for plan in new:
            keeper = _Keeper(plan=plan, opened=asyncio.get_running_loop().create_future())
            keeper.opened.add_done_callback(lambda future: future.cancelled() or future.exception())
            self._keepers[plan.id] = keeper
            keeper.work = asyncio.create_task(self._keep(keeper), name=f"keeper of {plan.id}")

    async def stop(self, *, commit: bool) -> None:
        """Close the tasks, with what is finished committed or not, and leave the group."""
        self._commit_at_end = commit
        if commit:  # what tasks have lost that are about to be opened again is done again, too
            opened = (keeper for keeper in self._keepers.values() if keeper.opened.done() and not keeper.ending)
            self.undone = {keeper.plan.id for keeper in opened if not keeper.running}
        known = self.failure
        try:
            await self._end(list(self._keepers.values()))
        finally:
            await self._membership.leave()
        if self.failure is not None and self.failure is not known:
            raise self.failure

    async def _end(self, keepers: Iterable[_Keeper]) -> None:
        """If this is cancelled, they end all the same: who is cancelled twice does not commit what it has finished.
        Whoever comes next waits for them."""
        keepers = list(keepers)
        works = [keeper.work for keeper in keepers if keeper.work is not None]
        for keeper in keepers:
            if keeper.work is not None and not keeper.ending:
                keeper.work.cancel()
            keeper.ending = True
        if works:
            await asyncio.wait(works)
        for keeper in keepers:
            keeper.opened.cancel()
            self._keepers.pop(keeper.plan.id, None)

    # -- what the engine asks ----------------------------------------------------------------------------------------
    @property
    def unsettled(self) -> bool:
        """Tasks are being opened, again or for the first time."""
        return any(not keeper.running for keeper in self._keepers.values())

    def unsettled_names(self) -> set[str]:
        return {name for name, keeper in self._keepers.items() if not keeper.running}

    async def settled(self) -> None:
        """Wait until all tasks run, or one cannot."""
        while self.unsettled and self.failure is None:
            self._changed.clear()
            await self._changed.wait()

    def mends(self, task: Task) -> bool:
        """Whether this task's failure is one that ends with opening it again; then that begins."""
        if not (task.refused or isinstance(task.handling.failure, MENDABLE)):
            return False
        keeper = self._keepers.get(task.plan.id)
        if keeper is not None and keeper.running:
            keeper.running = False
            self._leave(task)
            keeper.failed.set()
        return True

    # -- the life of one task ----------------------------------------------------------------------------------------
    async def _keep(self, keeper: _Keeper) -> None:
        caution, wait = None, _SHORTEST
        while True:
            generation = self._membership.generation
            try:
                task = Task(keeper.plan, self._environment, caution=caution)
                recovered = await self._open(task)
                wait = _SHORTEST
                await self._run(keeper, task, recovered)
                failure = task.handling.failure
                logger.warning("%s: %s. Opening it again, from its last commit", keeper.plan.id, failure)
                await _close(task)
                caution = task.caution
            except MENDABLE as error:
                failure = error
                logger.warning("%s: cannot be opened: %s. Trying again in %.1f s", keeper.plan.id, error, wait)
                await asyncio.sleep(wait)
                wait = min(_LONGEST, wait * 2)
            except Exception as error:
                self._give_up(keeper, error)
                return
            fault_point("task.reopening")
            if isinstance(failure, FencedError):
                await self._regain(keeper.plan, generation)

    async def _open(self, task: Task) -> Recovered:
        async with self._room:
            try:
                fault_point("task.opening")
                return await task.open()
            except BaseException:
                with suppress(Exception):
                    await task.close(commit=False)
                raise

    async def _run(self, keeper: _Keeper, task: Task, recovered: Recovered) -> None:
        """Until it fails. When it is taken away, what it has finished is committed, unless it is too late for that."""
        keeper.failed.clear()
        keeper.running = True
        self._enter(task)
        if not keeper.opened.done():
            keeper.opened.set_result(TaskReport(task=task.plan.id, recovered=recovered))
        self._changed.set()
        try:
            await keeper.failed.wait()
        except asyncio.CancelledError:
            if keeper.running:
                keeper.running = False
                self._leave(task)
            raised = task.state is TaskState.FAILED  # by the engine, which ends with it
            try:
                fault_point("task.closing")
                await task.close(commit=self._commit_at_end)
                failure = task.handling.failure  # of a commit that was under way, or of a handler that was let end
            except (*MENDABLE, DataError) as error:
                failure = error
            if failure is not None and self._commit_at_end and not raised:
                self._lose(task, failure)
            elif task.handling.handled:  # by a handler that has ended since the last commit that could be made
                self.undone.add(task.plan.id)
            raise

    def _lose(self, task: Task, failure: BaseException) -> None:
        """It could not commit its last work. What would have ended the worker a moment earlier still does."""
        if not isinstance(failure, (*MENDABLE, DataError)):
            raise failure
        self.undone.add(task.plan.id)
        logger.warning("%s: its last work could not be committed, and is done again: %s", task.plan.id, failure)

    async def _regain(self, plan: TaskPlan, generation: int) -> None:
        """Wait until the group has assigned the task since it was opened, or says that it still is ours. If it has
        gone to another worker, that ends this wait, and the keeper."""
        wait = _SHORTEST
        while self._membership.generation == generation and not await self._membership.confirm():
            logger.warning("%s: fenced; waiting for the group to say whose it is", plan.id)
            await asyncio.sleep(wait)
            wait = min(_LONGEST, wait * 2)

    def _give_up(self, keeper: _Keeper, error: Exception) -> None:
        self.failure = self.failure or error
        if not keeper.opened.done():
            keeper.opened.set_exception(error)
        self._changed.set()
        self._environment.wake()


async def _close(task: Task) -> None:
    """To its end, also when the task is taken away meanwhile: handlers that nobody cancels would wait for ever."""
    closing = asyncio.ensure_future(task.close(commit=False))
    try:
        await asyncio.shield(closing)
    except asyncio.CancelledError:
        await asyncio.gather(closing, return_exceptions=True)
        raise


def _names(tasks: Iterable[str], most: int = 12) -> str:
    names = sorted(tasks)
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
