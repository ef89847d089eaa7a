"""Hosts an app's engine in a process: opens the log, starts the engine, answers those beside it, stops in order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidegate.engine.plan import Plan
from tidegate.engine.stores import Stores
from tidegate.engine.worker import Engine, TaskReport
from tidegate.functions.service import ServiceDefinition
from tidegate.functions.topics import TopicDefinition
from tidegate.logs.base import Log
from tidegate.logs.embedded import EmbeddedLog
from tidegate.settings import Resolved, Settings, resolve
from tidegate.time.clock import Clock, SystemClock

__all__ = ("AppDefinition", "Host", "data_directory", "log_directory", "open_log", "stores_directory")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class AppDefinition:
    """What an app is, apart from how it is hosted."""

    id: str
    services: tuple[ServiceDefinition, ...]
    topics: tuple[TopicDefinition, ...]
    options: Mapping[str, Any]
    """Settings given in the code."""

    def resolve(self, flags: Mapping[str, Any] | None = None) -> Resolved:
        return resolve(self.options, flags)


def data_directory(app: str, settings: Settings) -> Path:
    """Where an app keeps its things."""
    named = settings.broker.removeprefix("embedded://")
    return (Path(named) if named else settings.data) / app


def log_directory(app: str, settings: Settings) -> Path:
    return data_directory(app, settings)


def stores_directory(app: str, settings: Settings) -> Path:
    return data_directory(app, settings) / "stores"


def open_log(app: str, settings: Settings, clock: Clock) -> Log:
    return EmbeddedLog(log_directory(app, settings), clock=clock.now)


class Host:
    """One app in one process."""

    engine: Engine
    log: Log

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
        self.reports: list[TaskReport] = []
        self.finished = asyncio.Event()
        self._started = False

    @property
    def running(self) -> bool:
        return self._started

    async def start(self) -> list[TaskReport]:
        definition = self._define()
        self.settings = definition.resolve(self.flags).settings
        self.log = open_log(definition.id, self.settings, self.clock)
        await self.log.start()
        try:
            plan = Plan(definition.id, definition.services, definition.topics, self.settings, await self.log.topics())
            stores = Stores(stores_directory(definition.id, self.settings), self.settings)
            self.engine = Engine(plan, self.log, stores, self.settings, clock=self.clock, until_end=self.until_end)
            self.reports = await self.engine.start()
        except BaseException:
            await self.log.stop()
            raise
        self._started = True
        return self.reports

    async def run(self) -> None:
        """Until cancelled, or a task fails, or a bounded run is at its end."""
        await self.engine.run()
        self.finished.set()

    async def stop(self) -> None:
        """Commit what is finished, close the tasks, let go of the log."""
        if not self._started:
            return
        self._started = False
        try:
            await self.engine.close_tasks(commit=True)
        finally:
            await self.log.stop()
