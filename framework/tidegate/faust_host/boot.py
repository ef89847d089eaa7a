"""Starts an app under Faust: selects the services of Faust's supervised tree, and adds the engine."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from faust.app.base import BootStrategy
from mode import Service

from tidegate.directories import on_kafka
from tidegate.errors import UsageError
from tidegate.faust_host.config import keep_tables
from tidegate.host.engine_runner import EngineRunner

if TYPE_CHECKING:
    from tidegate.faust_host.hosted_app import HostedApp

__all__ = ("Boot", "EngineService")

logger = logging.getLogger("tidegate.faust")


class EngineService(Service):
    """The engine, as a member of Faust's supervised tree."""

    def __init__(self, app: HostedApp, **options: Any) -> None:
        super().__init__(**options)
        self._app, self._runner = app, EngineRunner(app.host)
        self._watching: asyncio.Task[None] | None = None

    async def on_start(self) -> None:
        app = self._app
        await self._runner.start()
        self._watching = asyncio.create_task(self._watch(), name="watching the engine")
        if app.boot_strategy.enable_kafka and app.tables:
            keep_tables(app.conf, app.host.directory, app.given_to_faust)

    async def _watch(self) -> None:
        await self._runner.wait()
        if self._runner.failure is not None:
            await self.crash(self._runner.failure)

    async def on_stop(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watching
        await self._runner.stop()


class Boot(BootStrategy):
    """Faust's own Kafka clients start only for what needs them, its web server only if the app asks for it:
    App(..., faust={"web_enabled": True})."""

    app: HostedApp
    enable_kafka = False
    enable_web: bool

    def __init__(self, app: Any, **options: Any) -> None:
        super().__init__(app, **options)
        _, given = app._default_options  # noqa: SLF001  its command line switches the web server on for everybody
        self.enable_web = bool(given.get("web_enabled"))

    def server(self) -> Iterable[Any]:
        """The engine starts first, and so creates the topics; it stops last, when no agent sends any more."""
        settings = self.app.connect_faust()
        wanted = self._wants_kafka()
        if wanted and not on_kafka(settings):
            raise UsageError(
                f"Faust's own agents and tables ({', '.join(wanted)}) need a Kafka broker, and this app runs on the "
                f"embedded log. Name one (--broker kafka://HOST:PORT), or write them as services: @app.process(topic)."
            )
        self.enable_kafka = on_kafka(settings) and bool(wanted or self.app.leads)
        if self.enable_kafka:
            self.app.in_worker = True  # as Faust's own worker sets it: exactly-once agents depend on it
            logger.info("Faust beside it, as group %s: %s", self.app.conf.id, ", ".join(wanted) or "tasks of a leader")
        return [self.app.engine_service, *super().server()]

    def client_only(self) -> Iterable[Any]:
        """Start what is needed to ask agents from outside of a worker."""
        self._require_kafka()
        return super().client_only()

    def producer_only(self) -> Iterable[Any]:
        self._require_kafka()
        return super().producer_only()

    def _wants_kafka(self) -> list[str]:
        return [*self.app.agents, *self.app.tables]

    def _require_kafka(self) -> None:
        if not on_kafka(self.app.connect_faust()):
            raise UsageError(
                "Faust's clients need a Kafka broker, and this app is on the embedded log: set TIDEGATE_BROKER"
            )
        self.enable_kafka = True
