"""Runs an app's engine in the event loop of its caller, and keeps what it failed with."""

from __future__ import annotations

import asyncio

from tidegate.host.host import Host

__all__ = ("EngineRunner",)


class EngineRunner:
    """Started, waited for and stopped once: by `App.start` and `stop`, or by the service that Faust supervises."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._running: asyncio.Task[None] | None = None
        self.failure: BaseException | None = None
        """What the engine failed with: the original exception."""

    async def start(self) -> None:
        """Open the log, recover the tasks, and begin to run them."""
        await self._host.start()
        self._running = asyncio.create_task(self._host.run(), name="running the engine")

    async def wait(self) -> None:
        """Until a bounded run is at its end, or the engine has failed, or it is stopped."""
        if self._running is not None:
            await asyncio.wait((self._running,))
            self._keep_failure(self._running)

    async def stop(self) -> None:
        """Stop the engine, commit what is finished, close the log."""
        running, self._running = self._running, None
        if running is not None:
            running.cancel()
            await asyncio.wait((running,))
            self._keep_failure(running)
        await self._host.stop()

    def _keep_failure(self, running: asyncio.Task[None]) -> None:
        if self.failure is None and not running.cancelled():
            self.failure = running.exception()
