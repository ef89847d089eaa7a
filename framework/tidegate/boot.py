"""How an app starts: which services of the supervised tree run, and ours among them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from faust.app.base import BootStrategy
from mode import Service

from tidegate.errors import UsageError
from tidegate.host import Host

if TYPE_CHECKING:
    from tidegate.app import App

__all__ = ("Boot", "EngineService")


class EngineService(Service):
    """The engine, as a member of Faust's supervised tree."""

    def __init__(self, app: App, **options: Any) -> None:
        super().__init__(**options)
        self._app = app
        self._running: asyncio.Task[None] | None = None

    async def on_start(self) -> None:
        await self._app.host.start()

    async def on_started(self) -> None:
        self._running = asyncio.ensure_future(self._run(self._app.host))

    async def _run(self, host: Host) -> None:
        try:
            await host.run()
        except Exception as error:
            await self.crash(error)

    async def on_stop(self) -> None:
        if self._running is not None:
            self._running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._running
        await self._app.host.stop()


class Boot(BootStrategy):
    """Faust's own Kafka clients never start here, its web server only for App(..., web_enabled=True)."""

    enable_kafka = False

    def __init__(self, app: Any, **options: Any) -> None:
        super().__init__(app, **options)
        _, given = app._default_options  # noqa: SLF001  its command line switches the web server on for everybody
        self.enable_web = bool(given.get("web_enabled"))

    def server(self) -> Iterable[Any]:
        app: Any = self.app
        if app.agents or app.tables:
            names = ", ".join([*app.agents, *app.tables])
            raise UsageError(
                f"Faust's own agents and tables ({names}) need a Kafka broker, and this app runs on the embedded log. "
                f"Write them as services: @app.process(topic)."
            )
        return [*super().server(), app.engine_service]
