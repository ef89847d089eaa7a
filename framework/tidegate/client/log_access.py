"""Access to an app's log from outside of its workers, for commands and tools.

An embedded log has one owner: if it runs, requests go to its control socket, else this process becomes the owner for
the time being. A broker is accessed directly, beside the workers.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from tidegate.checkpoints.restore.restore import OnProgress, RestoreOptions, RestoreResult
from tidegate.checkpoints.storage.reader import CheckpointReader
from tidegate.client.log_session import BrokerLogSession, LogSession
from tidegate.directories import data_directory, on_kafka
from tidegate.engine.topology.plan import Plan
from tidegate.engine.topology.run import FIRST, Run, current_run
from tidegate.errors import LogError, LogInUseError
from tidegate.host.app_definition import AppDefinition
from tidegate.host.host import open_log
from tidegate.logs.base import TopicSpec
from tidegate.logs.embedded.observer import LogObserver
from tidegate.logs.observer import Observer
from tidegate.owner_rpc.client import Connection, connect
from tidegate.owner_rpc.operations import Operations, describe_topics
from tidegate.owner_rpc.protocol import ServiceStatus, TakeCheckpoint, TopicStatus
from tidegate.owner_rpc.reset import topics_of
from tidegate.owner_rpc.task_progress import committed_status
from tidegate.settings import Settings
from tidegate.settings_resolution import Resolved
from tidegate.time.clock import SystemClock

__all__ = ("AppReport", "LogAccess")

LOCK_WAIT_SECONDS: Final = 15.0
"""How long to wait for a log whose owner does not answer: a worker that starts or stops, or another command."""

CONNECT_SECONDS: Final = 3.0
"""How long a command waits for a broker that does not answer, unless kafka_connect_timeout is set."""


@dataclass(frozen=True, kw_only=True)
class AppReport:
    """An app's services and their progress."""

    plan: Plan
    services: list[ServiceStatus]
    """Empty if there is no log yet."""
    workers: list[str]
    """The running workers."""


class LogAccess:
    """Connects to the owner of the log, or becomes its owner; again after each release."""

    def __init__(
        self, definition: AppDefinition, flags: Mapping[str, Any] | None = None, *, lock_wait: float = LOCK_WAIT_SECONDS
    ) -> None:
        self.definition = definition
        self.settings = _with_short_timeout(definition.resolve(flags))
        self.directory = data_directory(definition.id, self.settings)
        self.shared = on_kafka(self.settings)
        """The log is on a broker and has no owner."""
        self._patience = lock_wait
        self._connection: Connection | None = None
        self._session: LogSession | None = None

    @property
    def where(self) -> str:
        return self.settings.broker if self.shared else str(self.directory)

    @property
    def exists(self) -> bool:
        """Whether there is a log: the app has run here, or was sent records. Always true for a broker."""
        return self.shared or (self.directory / "log" / "CURRENT").exists()

    @property
    def owns(self) -> bool:
        """Whether this process owns the log, so that others wait until it is released."""
        return self._session is not None and not self.shared

    @property
    def owner(self) -> str | None:
        """The connected worker, if there is one."""
        return None if self._connection is None else str(self._connection.address)

    @property
    def max_record_bytes(self) -> int:
        return open_log(self.definition.id, self.settings, SystemClock()).max_record_bytes

    # -- observing ---------------------------------------------------------------------------------------------------
    def observer(self) -> Observer:
        """A read-only view of the log that needs no ownership; not started yet."""
        if self.shared:
            from tidegate.logs.kafka.observer import KafkaObserver

            return KafkaObserver(self.settings.broker, self.settings)
        return LogObserver(self.directory)

    @asynccontextmanager
    async def observed(self) -> AsyncIterator[Observer | None]:
        """A started observer; None: there is no log yet."""
        if not self.exists:
            yield None
            return
        observer = self.observer()
        await observer.start()
        try:
            yield observer
        finally:
            await observer.stop()

    async def load_plan(self, observer: Observer | None) -> tuple[Plan, list[TopicStatus]]:
        """The app's plan for the topics that exist, and the status of the app's topics."""
        existing = {} if observer is None else await observer.topics()
        plan = self._plan(existing, FIRST if observer is None else await current_run(observer, self.definition.id))
        own = topics_of(plan, existing) if self.shared else existing
        return plan, [] if observer is None else await describe_topics(observer, [existing[name] for name in own])

    async def report(self) -> AppReport:
        """Query the running worker, or read the committed progress from the log."""
        connection = None if self.shared else await connect(self.directory)
        if connection is None:
            return await self._report_from_log()
        try:
            topics = {topic.name: _spec(topic) for topic in await connection.topics()}
            plan = self._plan(topics, Run(id=connection.run))
            return AppReport(plan=plan, services=await connection.services(), workers=[str(connection.address)])
        finally:
            await connection.close()

    async def _report_from_log(self) -> AppReport:
        async with self.observed() as observer:
            if observer is None:
                return AppReport(plan=self._plan({}, FIRST), services=[], workers=[])
            run = await current_run(observer, self.definition.id)
            plan, workers = self._plan(await observer.topics(), run), await observer.workers(self.definition.id)
            services = await committed_status(plan, observer, workers)
            return AppReport(plan=plan, services=services, workers=sorted(worker.name for worker in workers))

    def _plan(self, existing: Mapping[str, TopicSpec], run: Run) -> Plan:
        definition = self.definition
        return Plan(definition.id, definition.services, definition.topics, self.settings, existing, run)

    # -- operating ---------------------------------------------------------------------------------------------------
    async def operations(self) -> Operations:
        """Connect to the worker, or become the log's owner; a broker needs neither."""
        deadline = asyncio.get_running_loop().time() + self._patience
        while True:
            if self._connection is not None:
                return self._connection
            if self._session is not None:
                return self._session.operations
            if not self.shared:
                self._connection = await connect(self.directory)
            if self._connection is None:
                await self._begin_session(deadline)

    async def plan(self) -> Plan:
        """The app's plan for the topics that exist."""
        operations = await self.operations()
        return self._plan({topic.name: _spec(topic) for topic in await operations.topics()}, self._run)

    @property
    def _run(self) -> Run:
        if self._session is not None:
            return self._session.plan.run
        return FIRST if self._connection is None else Run(id=self._connection.run)

    async def create_topics(self) -> None:
        """Create the app's topics, unless the owning worker did so when it started."""
        await self.operations()
        if self._session is not None:
            await self._session.create_topics()

    async def check_reset(self) -> None:
        """LogError: a reset is refused, because workers run on the broker that cannot be reset remotely."""
        await self.operations()
        if isinstance(self._session, BrokerLogSession):
            await self._session.check_no_workers()

    # -- checkpoints -------------------------------------------------------------------------------------------------
    async def checkpoint(self, name: str | None, *, stop: bool = False, timeout: float | None = None) -> int:
        """Trigger a checkpoint, or a savepoint of this name. Returns its number when it is complete."""
        operations = await self.operations()
        if self._session is not None:
            return await self._session.checkpoint(name, stop=stop, timeout=timeout)
        return (await operations.checkpoint(TakeCheckpoint(name, stop, timeout))).epoch

    async def restore(
        self, reader: CheckpointReader, options: RestoreOptions, on_progress: OnProgress
    ) -> RestoreResult:
        """Begin a new run from a savepoint. LogError: workers run."""
        await self.operations()
        if self._session is None:
            raise LogError(
                f"{self.owner} runs {self.definition.id}, and the state of a running worker cannot be replaced. Stop "
                f"it (Ctrl-C, or 'tidegate savepoint create APP NAME --stop'), and retry."
            )
        return await self._session.restore(reader, options, on_progress)

    async def release(self) -> None:
        """Release the log, so that a worker can start. The next use connects again."""
        connection, self._connection = self._connection, None
        session, self._session = self._session, None
        if connection is not None:
            await connection.close()
        if session is not None:
            await session.stop()

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Operations]:
        try:
            yield await self.operations()
        finally:
            await self.release()

    async def _begin_session(self, deadline: float) -> None:
        """Become the owner of the log, or wait for its current owner to answer or release it."""
        kind = BrokerLogSession if self.shared else LogSession
        session = kind(self.definition, self.settings, SystemClock())
        try:
            await session.start()
        except LogInUseError:
            if asyncio.get_running_loop().time() >= deadline:
                raise
            await asyncio.sleep(0.05)
        except BaseException:
            with contextlib.suppress(Exception):
                await session.stop()
            raise
        else:
            self._session = session


def _with_short_timeout(resolved: Resolved) -> Settings:
    """A worker waits for its broker; a command fails early, since its address may be mistyped."""
    settings = resolved.settings
    if resolved.sources["kafka_connect_timeout"] != "default":
        return settings
    return replace(settings, kafka_connect_timeout=min(settings.kafka_connect_timeout, CONNECT_SECONDS))


def _spec(topic: TopicStatus) -> TopicSpec:
    return TopicSpec(name=topic.name, partitions=topic.partitions, compact=topic.compact)
