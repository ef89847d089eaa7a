"""The worker process: starts an app, waits for a signal, a failure or the end of a bounded run, and stops it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from tidegate.app import App

__all__ = ("run_worker",)

logger = logging.getLogger("tidegate.worker")

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


def run_worker(app: App, flags: Mapping[str, Any], *, until_end: bool = False) -> None:
    """Returns after a signal or at the end of a bounded run; raises what the app failed with."""
    import uvloop

    app.host.flags = dict(flags)
    app.host.until_end = until_end
    set_up_logging(app.define().resolve(flags).settings.log_level)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_Worker(app).run())


class _Worker:
    def __init__(self, app: App) -> None:
        self._app = app
        self._stop = asyncio.Event()

    async def run(self) -> None:
        """1. Start. 2. Wait. 3. Stop, in any case. 4. Raise what went wrong first."""
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._on_signal, number)
        app = self._app
        try:
            if await self._or_stop(app.start()):
                await self._or_stop(self._end())
        finally:
            await app.stop()
        if app.crash_reason is not None:
            raise app.crash_reason
        logger.info("stopped: everything that was handled is committed")

    async def _end(self) -> None:
        """Until a bounded run is at its end, or something fails."""
        await self._app.wait_first(self._app.host.finished.wait())

    async def _or_stop(self, work: Any) -> bool:
        """Do this; False: a signal came first, and it was given up."""
        working = asyncio.ensure_future(work)
        stopping = asyncio.ensure_future(self._stop.wait())
        await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if working.done():
            working.result()
            return True
        working.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await working
        return False

    def _on_signal(self, number: signal.Signals) -> None:
        if self._stop.is_set():
            click.echo("Stopped at once. What was not committed is handled again at the next start.", err=True)
            os._exit(128 + number)
        logger.info("%s: stopping; once more stops at once", number.name)
        self._stop.set()


def set_up_logging(level: str) -> None:
    """Tidegate's own lines at this level, those of others when something is wrong."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines())
    debugging = level == "debug"
    logging.basicConfig(level=logging.DEBUG if debugging else logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("tidegate").setLevel(level.upper())
    for noisy in ("mode", "faust", "asyncio", "tidegate.app", "tidegate.boot"):  # the last two log as services of mode
        # What makes the app fail is shown by the command itself, on one screen.
        logging.getLogger(noisy).setLevel(logging.DEBUG if debugging else logging.CRITICAL)


class _Lines(logging.Formatter):
    """Information as it is; what is wrong with its level and where it comes from."""

    _COLOURS: Final = {logging.WARNING: "yellow", logging.ERROR: "red", logging.CRITICAL: "red"}

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        if record.levelno == logging.INFO:
            return text
        label = f"{record.levelname.capitalize()} ({record.name}):"
        colour = self._COLOURS.get(record.levelno)
        return f"{click.style(label, fg=colour) if sys.stderr.isatty() else label} {text}"
