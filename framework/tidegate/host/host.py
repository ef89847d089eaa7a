"""Hosts an app's engine in a process: opens the log, starts the engine, serves the control socket, stops in order."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

from tidegate.checkpoints.coordination.service import CheckpointService
from tidegate.checkpoints.coordination.status import CheckpointMetrics
from tidegate.checkpoints.coordination.trigger import request_checkpoint
from tidegate.directories import Slot, checkpoint_url, data_directory, on_kafka, stores_directory
from tidegate.engine.runtime.state_directory import StateDirectory
from tidegate.engine.task import Task, TaskState
from tidegate.engine.topology.plan import Plan
from tidegate.engine.topology.run import current_run, fence
from tidegate.engine.worker.engine import Engine, TaskReport
from tidegate.errors import LogInUseError, NotReadyError, OwnerError, StoreError
from tidegate.formatting import count
from tidegate.host.actor_client import ActorClient
from tidegate.host.app_definition import AppDefinition
from tidegate.host.metrics_server import serve_metrics
from tidegate.host.producer import TopicProducer
from tidegate.logs.base import Log, NewRecord, TopicPartition
from tidegate.logs.embedded import EmbeddedLog
from tidegate.logs.membership import Membership, SingleWorker
from tidegate.owner_rpc.client import connect
from tidegate.owner_rpc.operations import Owner
from tidegate.owner_rpc.reset import reset_app
from tidegate.owner_rpc.rwlock import RWLock
from tidegate.owner_rpc.server import ControlServer
from tidegate.query.key_count import KeyCount, count_keys
from tidegate.query.views import ServiceView, TaskView
from tidegate.settings import Settings
from tidegate.settings_resolution import Resolved
from tidegate.time.clock import Clock, SystemClock

__all__ = ("Host", "open_log")

logger = logging.getLogger(__name__)

LOCK_WAIT_SECONDS: Final = 5.0
"""How long a worker waits for a log that is held by a command, or by a worker that is stopping."""


def open_log(app: str, settings: Settings, clock: Clock) -> Log:
    if on_kafka(settings):
        from tidegate.logs.kafka import KafkaLog

        return KafkaLog(settings.broker, settings)
    return EmbeddedLog(data_directory(app, settings), clock=clock.now)


def join_group(app: str, settings: Settings, address: str) -> Membership:
    """This worker's membership in the app's group; on a broker the group may have several. `address`: of its API."""
    if on_kafka(settings):
        from tidegate.logs.kafka.connection.options import addresses_of
        from tidegate.logs.kafka.groups import group_of
        from tidegate.logs.kafka.membership import KafkaMembership

        return KafkaMembership(group_of(app), addresses_of(settings.broker), settings, address=address)
    return SingleWorker(address)


def _warn_of_ignored_settings(resolved: Resolved, plan: Plan) -> None:
    for sentence in resolved.ignored:
        logger.warning("%s", sentence)
    if plan.fixed and resolved.sources["partitions"] != "default":
        wanted = resolved.settings.partitions
        logger.warning(
            "partitions=%d is for topics that do not exist yet; these services read topics that exist: %s. To "
            "change the number of tasks, stop the app with a savepoint and restore it with --partitions %d.",
            wanted, ", ".join(f"{name} has {count(tasks, 'task')}" for name, tasks in plan.fixed.items()), wanted,
        )  # fmt: skip


class Host:
    """One app in one process."""

    engine: Engine
    checkpoints: CheckpointService
    log: Log
    producer: TopicProducer
    actors: ActorClient
    settings: Settings
    directory: Path
    """This worker's directory."""

    def __init__(
        self,
        define: Callable[[], AppDefinition],
        *,
        flags: Mapping[str, Any] | None = None,
        clock: Clock | None = None,
        until_end: bool = False,
    ) -> None:
        self._define, self.flags, self.clock = define, dict(flags or {}), clock or SystemClock()
        self.until_end = until_end
        self.address = ""
        """The address of this worker's API, if it has one: set before the start."""
        self.lock = RWLock()
        """Held shared by users of topics and tasks, and exclusively by a reset."""
        self.resets = 0
        """The number of resets: anything that was cached about topics before the last one is outdated."""
        self.reports: list[TaskReport] = []
        self.recovered_keys = KeyCount(0, exact=True)
        self.finished = asyncio.Event()
        self.uncommitted: Collection[str] = ()
        """After the stop: tasks whose last work could not be committed and will be repeated."""
        self._resources = AsyncExitStack()
        self._stops_answering = AsyncExitStack()
        self._opened = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._reset_failure: BaseException | None = None

    @property
    def definition(self) -> AppDefinition:
        """The current declarations of the app."""
        return self._define()

    @property
    def running(self) -> bool:
        return self._opened.is_set()

    # -- starting and stopping ---------------------------------------------------------------------------------------
    async def start(self) -> list[TaskReport]:
        """1. Open the log. 2. Create the topics. 3. Serve the control socket. 4. Recover the tasks."""
        definition = self._define()
        resolved = definition.resolve(self.flags)
        self.settings = resolved.settings
        async with AsyncExitStack() as started:
            await self._open_log(definition.id)
            started.push_async_callback(self.log.stop)
            self.producer = TopicProducer(self.log, definition.id)
            started.push_async_callback(self.producer.close)
            plan = await self._plan(definition)
            _warn_of_ignored_settings(resolved, plan)
            self.engine = self._new_engine(plan, started)
            await self.log.create(plan.specs)
            self.actors = ActorClient(plan, self.clock, self._send_message, self.log)
            started.push_async_callback(self.actors.close)
            started.callback(serve_metrics(self.settings.metrics, self.engine.metrics.registry))
            if not on_kafka(self.settings):
                await self._serve_control(started)
            started.push_async_callback(self.engine.close_tasks, commit=False)  # if recovery fails
            await self._open_tasks()
            self._resources = started.pop_all()
        self._opened.set()
        return self.reports

    async def _plan(self, definition: AppDefinition) -> Plan:
        run = await current_run(self.log, definition.id)
        await fence(self.log, TopicPartition(f"{definition.id}.control", 0), run, self.clock.now())
        existing = await self.log.topics()
        plan = Plan(definition.id, definition.services, definition.topics, self.settings, existing, run)
        plan.check_placement()
        if plan.forgotten:
            logger.warning(
                "the log has state of services that the code no longer declares: %s. To delete it, restore a savepoint "
                "with --allow-dropped, or use 'tidegate reset'.",
                ", ".join(plan.forgotten),
            )
        return plan

    async def _send_message(self, target: TopicPartition, record: NewRecord) -> int:
        async with self.lock.shared():
            return await self.producer.send(target, record)

    def _new_engine(self, plan: Plan, started: AsyncExitStack) -> Engine:
        settings = self.settings
        if on_kafka(settings):
            slot = Slot.take(data_directory(plan.app, settings))
            started.callback(slot.release)
            self.directory, directory = slot.directory, slot.stores
        else:
            self.directory, directory = data_directory(plan.app, settings), stores_directory(plan.app, settings)
        stores, membership = StateDirectory(directory, settings), join_group(plan.app, settings, self.address)
        self.checkpoints = CheckpointService(
            plan,
            self.log,
            stores,
            settings,
            self.clock,
            url=checkpoint_url(plan.app, settings),
            leads=lambda: plan.control in membership.owned,
        )
        engine = Engine(
            plan,
            self.log,
            stores,
            settings,
            membership=membership,
            clock=self.clock,
            snapshots=self.checkpoints,
            until_end=self.until_end,
        )
        self.checkpoints.metrics = CheckpointMetrics(engine.metrics.registry)
        return engine

    async def _serve_control(self, started: AsyncExitStack) -> None:
        """Other processes cannot open an embedded log; they send their requests to this control server."""
        control = ControlServer(self.plan.app, Owner(self), self.directory, run=self.plan.run.id)
        await control.start()
        started.push_async_callback(control.stop)
        self._stops_answering.push_async_callback(control.stop)

    async def run(self) -> None:
        """Run until cancelled, or a task fails, or a bounded run ends. A reset restarts the engine."""
        while True:
            self._running = asyncio.ensure_future(self.engine.run())
            try:
                await asyncio.wait((self._running,))
            finally:
                await self._interrupt()
            if not self._running.cancelled():
                break
            async with self.lock.shared():  # the reset is over
                if self._reset_failure is not None:
                    raise self._reset_failure
        self._running.result()
        self.finished.set()

    async def stop(self) -> None:
        """1. Answer open requests. 2. Let handlers end. 3. Commit what is finished. 4. Close the tasks and the log."""
        if not self.running:
            return
        async with self._resources:
            await self._stops_answering.aclose()
            self._opened.clear()
            await self.engine.drain(self.settings.drain_seconds)
            await self.engine.close_tasks(commit=True)
            self.uncommitted = self.engine.uncommitted

    async def _open_log(self, app: str) -> None:
        """Another process may hold the log briefly: a command, or a worker that is about to stop."""
        directory = data_directory(app, self.settings)
        deadline = asyncio.get_running_loop().time() + LOCK_WAIT_SECONDS
        while True:
            self.log = open_log(app, self.settings, self.clock)
            try:
                return await self.log.start()
            except LogInUseError:
                if asyncio.get_running_loop().time() >= deadline or await _has_worker(directory):
                    raise
            await asyncio.sleep(0.05)

    async def _open_tasks(self) -> None:
        """Recover the tasks, and log what was recovered."""
        _tune_garbage_collector()
        started = time.perf_counter()
        self.reports = await self.engine.open_tasks()
        took = (time.perf_counter() - started) * 1000
        plan, tasks = self.plan, self.engine.tasks
        services = ", ".join(f"{name} × {service.tasks}" for name, service in plan.services.items())
        logger.info("app %s in %s: %s", plan.app, self.directory, services or "no services")
        self.recovered_keys = await self._count_keys()
        replayed = sum(report.recovered.replayed for report in self.reports)
        logger.info(
            "recovered %s, replayed %s in %.0f ms (%s)",
            self.recovered_keys, count(replayed, "record"), took, count(len(tasks), "task"),
        )  # fmt: skip

    async def _count_keys(self) -> KeyCount:
        """The keys of the local tasks. On a broker, the group may revoke tasks while they are counted."""
        while True:
            tasks = list(self.engine.tasks.values())
            try:
                return await count_keys((task.definition, _view(task)) for task in tasks)
            except StoreError:
                if all(task.state is TaskState.RUNNING for task in tasks):
                    raise

    # -- operations for other processes ------------------------------------------------------------------------------
    @property
    def plan(self) -> Plan:
        return self.engine.plan

    @property
    def tasks(self) -> Mapping[str, Task]:
        return self.engine.tasks if self.running else {}

    async def view(self, service: str, key: bytes | None = None) -> ServiceView:
        await self._opened.wait()
        definition = self.plan.services[service]
        for name in (f"{service}.{number}" for number in range(definition.tasks)):
            if name not in self.tasks:  # its keys would seem not to exist
                raise NotReadyError(name, "its state is being restored")
        views = [_view(task) for task in self.tasks.values() if task.definition.name == service]
        return ServiceView(definition, views, self.clock)

    async def checkpoint(self, name: str | None = None, *, stop: bool = False, timeout: float | None = None) -> int:
        """Take a checkpoint now; with a name, a savepoint. Returns its number when it is complete. stop: stop the app
        at its cut."""
        await self._opened.wait()
        seconds = timeout or 2 * self.settings.checkpoint_timeout
        return await request_checkpoint(self.log, self.plan.app, self.clock, name=name, stop=stop, timeout=seconds)

    async def reset(self, *, outputs: bool, everything: bool) -> list[str]:
        """Close the tasks, delete their state, reopen them and continue. If that fails, the worker fails."""
        await self._opened.wait()
        async with self.lock.exclusive():
            await self._interrupt()
            self.resets += 1
            try:
                await self.engine.close_tasks(commit=False)
                emptied = await reset_app(
                    self.plan, self.log, self.engine.stores, outputs=outputs, everything=everything
                )
                logger.info("reset: emptied %s; all services start from scratch", ", ".join(emptied))
                await self._open_tasks()
            except BaseException as error:
                self._reset_failure = error
                raise
        return emptied

    async def _interrupt(self) -> None:
        if self._running is not None and not self._running.done():
            self._running.cancel()
            await asyncio.wait((self._running,))


def _view(task: Task) -> TaskView:
    return TaskView(number=task.plan.number, store=task.store, watermark=task.time.watermark)


def _tune_garbage_collector() -> None:
    """Make full collections rare, and exempt from them what is loaded now.

    By default Python traverses all live objects after every few thousand net allocations; a worker holds several
    hundred thousand values, none of them garbage. Measured with 100 k keys, this costs a fifth of the throughput,
    pauses of 50 ms, and more than half of the duration of a restore."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


async def _has_worker(directory: Path) -> bool:
    """Whether a worker owns this log."""
    try:
        connection = await connect(directory)
    except OwnerError:
        return True  # a worker owns it, but does not respond
    if connection is not None:
        await connection.close()
    return connection is not None
