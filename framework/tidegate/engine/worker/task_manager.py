"""The task manager of a worker: opens tasks when they are assigned, closes them when they are revoked, reopens them
after recoverable failures.

Each assigned task has a supervisor, a coroutine that lives as long as the assignment:

1. Open the task. If the log is unavailable, or the task is fenced, try again; any other error ends the worker.
2. Let it run until it fails with a recoverable error: opened again, it reads its last commit from the log.
3. Close it. Before a fenced task is opened again, the group must assign it again, or confirm that it still belongs to
   this worker: a worker that was suspended during a rebalance must not fence the new owner.
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

RECOVERABLE: Final = (FencedError, LogUnavailableError, OffsetOutOfRangeError)
"""Errors that reopening a task recovers: it reads its positions and its state from the log."""
_CONCURRENT_OPENS: Final = 16
"""Tasks that are opened concurrently: each uses connections and memory while it replays."""
_MIN_BACKOFF: Final = 0.1
_MAX_BACKOFF: Final = 5.0
"""Seconds before the next attempt, doubled each time."""


@dataclass(frozen=True, kw_only=True)
class TaskReport:
    """The result of opening a task."""

    task: str
    recovered: Recovered


@dataclass(kw_only=True, eq=False)
class _Supervisor:
    plan: TaskPlan
    opened: asyncio.Future[TaskReport]
    """Resolved when the task was opened for the first time."""
    failed: asyncio.Event = field(default_factory=asyncio.Event)
    coroutine: asyncio.Task[None] | None = None
    running: bool = False
    ending: bool = False
    """The task was revoked, or the worker stops."""


class TaskManager:
    def __init__(
        self,
        plan: Plan,
        environment: Environment,
        membership: Membership,
        *,
        on_running: Callable[[Task], None],
        on_stopped: Callable[[Task], None],
    ) -> None:
        """`on_running`, `on_stopped`: called when the engine must start, or stop, to run a task."""
        self._environment, self._membership = environment, membership
        self._on_running, self._on_stopped = on_running, on_stopped
        self._plans: Mapping[TopicPartition, TaskPlan] = {task.changelog: task for task in plan.tasks}
        self._supervisors: dict[str, _Supervisor] = {}
        self._open_slots = asyncio.Semaphore(_CONCURRENT_OPENS)
        self._commit_at_end = True
        self._changed = asyncio.Event()
        self.failure: BaseException | None = None
        """An error that is not recoverable: it ends the worker."""
        self.uncommitted: set[str] = set()
        """Tasks that were stopped with finished work that is not committed: it is repeated."""

    # -- assignments -------------------------------------------------------------------------------------------------
    async def start(self) -> list[TaskReport]:
        """Join the group, and open the assigned tasks. Waits for all, then raises the first error."""
        stores = self._environment.stores
        own = {(plan.definition.name, plan.number): task for task, plan in self._plans.items()}
        # The worker that gets the control topic's partition leads: see `checkpoints.coordination.coordinator`.
        tasks = (*self._plans, *({plan.control for plan in self._plans.values()}))
        await self._membership.join(tasks, lambda: [own[known] for known in stores.present() if known in own])
        await self.reconcile()
        following = asyncio.create_task(self.follow())  # the assignment may change while tasks are restored
        try:
            await self._opened(following)
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
        for supervisor in self._supervisors.values():
            if not supervisor.opened.cancelled() and (failure := supervisor.opened.exception()) is not None:
                raise failure
        opened = (supervisor.opened for supervisor in self._supervisors.values())
        return [future.result() for future in opened if not future.cancelled()]

    async def _opened(self, following: asyncio.Task[None]) -> None:
        """Wait until each assigned task is opened, or has failed to open."""
        while waiting := [one.opened for one in self._supervisors.values() if not one.opened.done()]:
            pending: list[asyncio.Future[Any]] = [*waiting, following]
            await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            if following.done():
                following.result()

    async def follow(self) -> None:
        """Follows the group's assignments until it is cancelled."""
        while True:
            generation = self._membership.generation
            await self.reconcile()
            await self._membership.changed(generation)

    async def reconcile(self) -> None:
        """Close tasks that are no longer assigned to this worker, and start to open the new ones."""
        owned = {plan.id: plan for task, plan in self._plans.items() if task in self._membership.owned}
        ended = [supervisor for name, supervisor in self._supervisors.items() if supervisor.ending or name not in owned]
        if revoked := [supervisor.plan.id for supervisor in ended if not supervisor.ending]:
            logger.info("revoked: %s", _names(revoked))
        await self._end(ended)
        new = [plan for name, plan in owned.items() if name not in self._supervisors]
        if new and not isinstance(self._membership, SingleWorker):  # a single worker always has all tasks
            logger.info("assigned: %s", _names(plan.id for plan in new))
        for plan in new:
            supervisor = _Supervisor(plan=plan, opened=asyncio.get_running_loop().create_future())
            supervisor.opened.add_done_callback(lambda future: future.cancelled() or future.exception())
            self._supervisors[plan.id] = supervisor
            supervisor.coroutine = asyncio.create_task(self._supervise(supervisor), name=f"supervisor of {plan.id}")

    async def stop(self, *, commit: bool) -> None:
        """Close the tasks, with a last commit or without, and leave the group."""
        self._commit_at_end = commit
        if commit:  # tasks that are being reopened after a failure repeat their uncommitted work, too
            opened = (one for one in self._supervisors.values() if one.opened.done() and not one.ending)
            self.uncommitted = {supervisor.plan.id for supervisor in opened if not supervisor.running}
        known = self.failure
        try:
            await self._end(list(self._supervisors.values()))
        finally:
            await self._membership.leave()
        if self.failure is not None and self.failure is not known:
            raise self.failure

    async def _end(self, supervisors: Iterable[_Supervisor]) -> None:
        """Ends supervisors. If this is cancelled, they still end: each is cancelled only once, since a second
        cancellation would interrupt its last commit. The next call waits for them."""
        supervisors = list(supervisors)
        coroutines = [supervisor.coroutine for supervisor in supervisors if supervisor.coroutine is not None]
        for supervisor in supervisors:
            if supervisor.coroutine is not None and not supervisor.ending:
                supervisor.coroutine.cancel()
            supervisor.ending = True
        if coroutines:
            await asyncio.wait(coroutines)
        for supervisor in supervisors:
            supervisor.opened.cancel()
            self._supervisors.pop(supervisor.plan.id, None)

    # -- called by the engine ----------------------------------------------------------------------------------------
    @property
    def opening(self) -> bool:
        """Whether any task is being opened or reopened."""
        return any(not supervisor.running for supervisor in self._supervisors.values())

    def opening_names(self) -> set[str]:
        return {name for name, supervisor in self._supervisors.items() if not supervisor.running}

    async def wait_until_open(self) -> None:
        """Wait until all tasks run, or one has failed for good."""
        while self.opening and self.failure is None:
            self._changed.clear()
            await self._changed.wait()

    def reopen(self, task: Task) -> bool:
        """Start to reopen a failed task. False: its failure is not recoverable."""
        if not (task.refused or isinstance(task.invoker.failure, RECOVERABLE)):
            return False
        supervisor = self._supervisors.get(task.plan.id)
        if supervisor is not None and supervisor.running:
            supervisor.running = False
            self._on_stopped(task)
            supervisor.failed.set()
        return True

    # -- supervision -------------------------------------------------------------------------------------------------
    async def _supervise(self, supervisor: _Supervisor) -> None:
        isolation, wait = None, _MIN_BACKOFF
        while True:
            generation = self._membership.generation
            try:
                task = Task(supervisor.plan, self._environment, isolation=isolation)
                recovered = await self._open(task)
                wait = _MIN_BACKOFF
                await self._run(supervisor, task, recovered)
                failure = task.invoker.failure
                logger.warning("%s: %s. Reopening the task from its last commit", supervisor.plan.id, failure)
                await _close(task)
                isolation = task.isolation
            except RECOVERABLE as error:
                failure = error
                logger.warning("%s: cannot be opened: %s. Trying again in %.1f s", supervisor.plan.id, error, wait)
                await asyncio.sleep(wait)
                wait = min(_MAX_BACKOFF, wait * 2)
            except Exception as error:
                self._fail(supervisor, error)
                return
            fault_point("task.reopening")
            if isinstance(failure, FencedError):
                await self._wait_for_assignment(supervisor.plan, generation)

    async def _open(self, task: Task) -> Recovered:
        async with self._open_slots:
            try:
                fault_point("task.opening")
                return await task.open()
            except BaseException:
                with suppress(Exception):
                    await task.close(commit=False)
                raise

    async def _run(self, supervisor: _Supervisor, task: Task, recovered: Recovered) -> None:
        """Until the task fails. When it is revoked, commits its finished work, unless a new owner has fenced it."""
        supervisor.failed.clear()
        supervisor.running = True
        self._on_running(task)
        if not supervisor.opened.done():
            supervisor.opened.set_result(TaskReport(task=task.plan.id, recovered=recovered))
        self._changed.set()
        try:
            await supervisor.failed.wait()
        except asyncio.CancelledError:
            if supervisor.running:
                supervisor.running = False
                self._on_stopped(task)
            raised = task.state is TaskState.FAILED  # the engine has raised the failure, and ends
            try:
                fault_point("task.closing")
                await task.close(commit=self._commit_at_end)
                failure = task.invoker.failure  # of a commit under way, or of a handler that was awaited
            except (*RECOVERABLE, DataError) as error:
                failure = error
            if failure is not None and self._commit_at_end and not raised:
                self._note_uncommitted(task, failure)
            elif task.invoker.handled:  # a handler has ended after the last possible commit
                self.uncommitted.add(task.plan.id)
            raise

    def _note_uncommitted(self, task: Task, failure: BaseException) -> None:
        """The last commit has failed. Raises an error that is not recoverable: it ends the worker as at any time."""
        if not isinstance(failure, (*RECOVERABLE, DataError)):
            raise failure
        self.uncommitted.add(task.plan.id)
        logger.warning("%s: the last commit failed, so its work is repeated: %s", task.plan.id, failure)

    async def _wait_for_assignment(self, plan: TaskPlan, generation: int) -> None:
        """Wait until the group has assigned the task again since it was opened, or confirms the assignment. If the task
        was assigned to another worker, the revocation cancels this wait."""
        wait = _MIN_BACKOFF
        while self._membership.generation == generation and not await self._membership.confirm():
            logger.warning("%s: fenced; waiting for the group to confirm or change the assignment", plan.id)
            await asyncio.sleep(wait)
            wait = min(_MAX_BACKOFF, wait * 2)

    def _fail(self, supervisor: _Supervisor, error: Exception) -> None:
        self.failure = self.failure or error
        if not supervisor.opened.done():
            supervisor.opened.set_exception(error)
        self._changed.set()
        self._environment.wake()


async def _close(task: Task) -> None:
    """Completes the close also when it is cancelled meanwhile: handlers that are not cancelled would wait forever."""
    closing = asyncio.ensure_future(task.close(commit=False))
    try:
        await asyncio.shield(closing)
    except asyncio.CancelledError:
        await asyncio.gather(closing, return_exceptions=True)
        raise


def _names(tasks: Iterable[str], most: int = 12) -> str:
    names = sorted(tasks)
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
