"""An app's log for whoever is not its worker: through the worker's socket if one runs, else as its owner, briefly."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from tidegate.control.client import Connection, connect
from tidegate.control.gate import Gate
from tidegate.control.operations import Operations, Owner
from tidegate.control.resetting import start_anew
from tidegate.engine.environment import Environment
from tidegate.engine.metrics import Metrics
from tidegate.engine.plan import Plan
from tidegate.engine.recovery import recover
from tidegate.engine.stores import Stores
from tidegate.engine.task import Task
from tidegate.errors import LogInUseError
from tidegate.host import AppDefinition, data_directory, open_log, stores_directory
from tidegate.logs.base import Log, TopicSpec
from tidegate.query.views import ServiceView, TaskView
from tidegate.settings import Settings
from tidegate.state.base import Store
from tidegate.time.clock import Clock, SystemClock

__all__ = ("Access", "Visit")

PATIENCE: Final = 15.0
"""How long to wait for a log that is held by somebody who does not answer: one that starts or stops, or a command."""


class Visit:
    """Owns a log without running the app's services: for a command, while no worker runs."""

    plan: Plan

    def __init__(self, definition: AppDefinition, settings: Settings, clock: Clock) -> None:
        self._definition, self._settings, self._clock = definition, settings, clock
        self.log: Log = open_log(definition.id, settings, clock)
        self.gate = Gate()
        self.tasks: Mapping[str, Task] = {}
        self._stores = Stores(stores_directory(definition.id, settings), settings)
        self._recovered: list[Store] = []
        self._views: dict[str, ServiceView] = {}

    async def start(self) -> None:
        await self.log.start()
        definition = self._definition
        existing = await self.log.topics()
        self.plan = Plan(definition.id, definition.services, definition.topics, self._settings, existing)

    async def stop(self) -> None:
        self._close_stores()
        await self.log.stop()

    async def view(self, service: str) -> ServiceView:
        """Bring the stores up to the end of their changelogs, and nothing else: no task starts, nothing is written."""
        if service not in self._views:
            tasks = [view async for view in self._recover(service)]
            self._views[service] = ServiceView(self.plan.services[service], tasks, self._clock)
        return self._views[service]

    async def _recover(self, service: str) -> AsyncIterator[TaskView]:
        existing = await self.log.topics()
        environment = self._environment()
        for plan in self.plan.tasks:
            if plan.definition.name == service and plan.changelog.topic in existing:
                recovered = await recover(plan, environment)
                self._recovered.append(recovered.store)
                yield TaskView(number=plan.number, store=recovered.store)

    async def reset(self, *, outputs: bool, everything: bool) -> list[str]:
        self._close_stores()
        return await start_anew(self.plan, self.log, self._stores, outputs=outputs, everything=everything)

    def _close_stores(self) -> None:
        self._views.clear()
        while self._recovered:
            self._recovered.pop().close()

    def _environment(self) -> Environment:
        return Environment(
            app=self._definition.id,
            run="1",
            log=self.log,
            stores=self._stores,
            settings=self._settings,
            clock=self._clock,
            metrics=Metrics(),
            wake=lambda: None,
            cache_limit=1000,
        )


class Access:
    """Finds whoever owns the log, or becomes its owner; anew each time that it has let go."""

    def __init__(
        self, definition: AppDefinition, flags: Mapping[str, Any] | None = None, *, patience: float = PATIENCE
    ) -> None:
        self.definition = definition
        self.settings = definition.resolve(flags).settings
        self.directory = data_directory(definition.id, self.settings)
        self._patience = patience
        self._connection: Connection | None = None
        self._visit: Visit | None = None

    @property
    def exists(self) -> bool:
        """Whether the app has ever run here, or was sent anything."""
        return (self.directory / "log" / "CURRENT").exists()

    @property
    def owns(self) -> bool:
        return self._visit is not None

    @property
    def owner(self) -> str | None:
        """The worker that is asked; None: there is none."""
        return None if self._connection is None else str(self._connection.address)

    async def operations(self) -> Operations:
        """Connect to the worker, or own the log."""
        deadline = asyncio.get_running_loop().time() + self._patience
        while True:
            if self._connection is not None:
                return self._connection
            if self._visit is not None:
                return Owner(self._visit)
            self._connection = await connect(self.directory)
            if self._connection is None:
                await self._own(deadline)

    async def plan(self) -> Plan:
        """The app's plan, with the topics as they are."""
        operations = await self.operations()
        existing = {
            topic.name: TopicSpec(name=topic.name, partitions=topic.partitions, compact=topic.compact)
            for topic in await operations.topics()
        }
        definition = self.definition
        return Plan(definition.id, definition.services, definition.topics, self.settings, existing)

    async def create_topics(self) -> None:
        """As its owner, create what the app needs; a worker has done so when it started."""
        await self.operations()
        if self._visit is not None:
            await self._visit.log.create(self._visit.plan.specs)

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

    async def _own(self, deadline: float) -> None:
        """Become the owner, or wait a little for whoever is it to answer."""
        visit = Visit(self.definition, self.settings, SystemClock())
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
