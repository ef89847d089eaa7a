"""An app's log for whoever is not its worker.

An embedded log has one owner: it is asked through its socket if it runs, else one becomes the owner, briefly. A broker
is asked directly, whoever works there.
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

__all__ = ("Access", "Report")

PATIENCE: Final = 15.0
"""How long to wait for a log that is held by somebody who does not answer: one that starts or stops, or a command."""

CONNECT_SECONDS: Final = 3.0
"""How long a command waits for a broker that does not answer, unless it is told."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """An app's services, and how they are doing."""

    plan: Plan
    services: list[ServiceStatus]
    """None, where there is no log yet."""
    workers: list[str]
    """Who runs them."""


class Access:
    """Finds whoever owns the log, or becomes its owner; anew each time that it has let go."""

    def __init__(
        self, definition: AppDefinition, flags: Mapping[str, Any] | None = None, *, patience: float = PATIENCE
    ) -> None:
        self.definition = definition
        self.settings = _impatient(definition.resolve(flags))
        self.directory = data_directory(definition.id, self.settings)
        self.shared = on_kafka(self.settings)
        """Nobody owns the log."""
        self._patience = patience
        self._connection: Connection | None = None
        self._visit: LogSession | None = None

    @property
    def where(self) -> str:
        return self.settings.broker if self.shared else str(self.directory)

    @property
    def exists(self) -> bool:
        """Whether the app has ever run here, or was sent anything. Of a broker, that shows when it is asked."""
        return self.shared or (self.directory / "log" / "CURRENT").exists()

    @property
    def owns(self) -> bool:
        """Whether others wait until this lets go."""
        return self._visit is not None and not self.shared

    @property
    def owner(self) -> str | None:
        """The worker that is asked; None: there is none."""
        return None if self._connection is None else str(self._connection.address)

    @property
    def max_record_bytes(self) -> int:
        return open_log(self.definition.id, self.settings, SystemClock()).max_record_bytes

    # -- looking -----------------------------------------------------------------------------------------------------
    def observer(self) -> Observer:
        """The log, seen from beside those who work with it; not started yet."""
        if self.shared:
            from tidegate.logs.kafka.observer import KafkaObserver

            return KafkaObserver(self.settings.broker, self.settings)
        return LogObserver(self.directory)

    @asynccontextmanager
    async def observed(self) -> AsyncIterator[Observer | None]:
        """The same, started; None: there is no log yet."""
        if not self.exists:
            yield None
            return
        observer = self.observer()
        await observer.start()
        try:
            yield observer
        finally:
            await observer.stop()

    async def look(self, observer: Observer | None) -> tuple[Plan, list[TopicStatus]]:
        """The app's plan with the topics as they are, and those topics."""
        existing = {} if observer is None else await observer.topics()
        plan = self._plan(existing, FIRST if observer is None else await current_run(observer, self.definition.id))
        own = topics_of(plan, existing) if self.shared else existing
        return plan, [] if observer is None else await describe_topics(observer, [existing[name] for name in own])

    async def report(self) -> Report:
        """Ask the workers, or look at what they have committed."""
        connection = None if self.shared else await connect(self.directory)
        if connection is None:
            return await self._report_from_log()
        try:
            topics = {topic.name: _spec(topic) for topic in await connection.topics()}
            plan = self._plan(topics, Run(id=connection.run))
            return Report(plan=plan, services=await connection.services(), workers=[str(connection.address)])
        finally:
            await connection.close()

    async def _report_from_log(self) -> Report:
        async with self.observed() as observer:
            if observer is None:
                return Report(plan=self._plan({}, FIRST), services=[], workers=[])
            run = await current_run(observer, self.definition.id)
            plan, workers = self._plan(await observer.topics(), run), await observer.workers(self.definition.id)
            services = await committed_status(plan, observer, workers)
            return Report(plan=plan, services=services, workers=sorted(worker.name for worker in workers))

    def _plan(self, existing: Mapping[str, TopicSpec], run: Run) -> Plan:
        definition = self.definition
        return Plan(definition.id, definition.services, definition.topics, self.settings, existing, run)

    # -- using -------------------------------------------------------------------------------------------------------
    async def operations(self) -> Operations:
        """Connect to the worker, or own the log; on a broker, neither is needed."""
        deadline = asyncio.get_running_loop().time() + self._patience
        while True:
            if self._connection is not None:
                return self._connection
            if self._visit is not None:
                return self._visit.operations
            if not self.shared:
                self._connection = await connect(self.directory)
            if self._connection is None:
                await self._begin_visit(deadline)

    async def plan(self) -> Plan:
        """The app's plan, with the topics as they are."""
        operations = await self.operations()
        return self._plan({topic.name: _spec(topic) for topic in await operations.topics()}, self._run)

    @property
    def _run(self) -> Run:
        if self._visit is not None:
            return self._visit.plan.run
        return FIRST if self._connection is None else Run(id=self._connection.run)

    async def create_topics(self) -> None:
        """Create what the app needs, unless a worker that owns the log did so when it started."""
        await self.operations()
        if self._visit is not None:
            await self._visit.create_topics()

    async def check_reset(self) -> None:
        """Whether a reset would be refused: on a broker, nobody can tell the workers to start anew."""
        await self.operations()
        if isinstance(self._visit, BrokerLogSession):
            await self._visit.check_nobody_works()

    # -- checkpoints -------------------------------------------------------------------------------------------------
    async def checkpoint(self, name: str | None, *, stop: bool = False, timeout: float | None = None) -> int:
        """Have the workers take a checkpoint, or a savepoint of this name. Returns its number when it is complete."""
        operations = await self.operations()
        if self._visit is not None:
            return await self._visit.checkpoint(name, stop=stop, timeout=timeout)
        return (await operations.checkpoint(TakeCheckpoint(name, stop, timeout))).epoch

    async def restore(
        self, reader: CheckpointReader, options: RestoreOptions, on_progress: OnProgress
    ) -> RestoreResult:
        """Begin a new run from a savepoint. LogError: workers run."""
        await self.operations()
        if self._visit is None:
            raise LogError(
                f"{self.owner} works with {self.definition.id}, and its state cannot be replaced under it. Stop it "
                f"(Ctrl-C, or 'tidegate savepoint create APP NAME --stop'), and try again."
            )
        return await self._visit.restore(reader, options, on_progress)

    async def release(self) -> None:
        """Let go, so that a worker may start. The next use finds the owner anew."""
        connection, self._connection = self._connection, None
        visit, self._visit = self._visit, None
        if connection is not None:
            await connection.close()
        if visit is not None:
            await visit.stop()

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Operations]:
        try:
            yield await self.operations()
        finally:
            await self.release()

    async def _begin_visit(self, deadline: float) -> None:
        """Become the owner, or wait a little for whoever is it to answer."""
        kind = BrokerLogSession if self.shared else LogSession
        visit = kind(self.definition, self.settings, SystemClock())
        try:
            await visit.start()
        except LogInUseError:
            if asyncio.get_running_loop().time() >= deadline:
                raise
            await asyncio.sleep(0.05)
        except BaseException:
            with contextlib.suppress(Exception):
                await visit.stop()
            raise
        else:
            self._visit = visit


def _impatient(resolved: Resolved) -> Settings:
    """A worker waits for its broker; whoever has typed a command, and perhaps a wrong address, wants to know."""
    settings = resolved.settings
    if resolved.sources["kafka_connect_timeout"] != "default":
        return settings
    return replace(settings, kafka_connect_timeout=min(settings.kafka_connect_timeout, CONNECT_SECONDS))


def _spec(topic: TopicStatus) -> TopicSpec:
    return TopicSpec(name=topic.name, partitions=topic.partitions, compact=topic.compact)
