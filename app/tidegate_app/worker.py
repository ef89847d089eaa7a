"""The worker process: starts an app, waits for a signal, a failure or the end of a bounded run, and stops it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import traceback
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from tidegate_app.api_server import open_api
from tidegate_app.error_report import is_users
from tidegate_app.parent_link import ParentLink

if TYPE_CHECKING:
    from tidegate.app import App
    from tidegate_api.server import ApiServer

__all__ = ("AT_ONCE", "FINISHED", "run_child", "run_worker", "set_up_logging")

logger = logging.getLogger("tidegate.worker")

AT_ONCE: Final = "Stopped at once. What was not committed is handled again at the next start."
"""What is said at the second signal."""
FINISHED: Final = 10
"""The exit code of one of several processes that has ended because the app has: not because of a signal."""
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


def run_worker(
    app: App, flags: Mapping[str, Any], *, until_end: bool = False, parent_link: ParentLink | None = None
) -> None:
    """Returns after a signal or at the end of a bounded run; raises what the app failed with."""
    import uvloop

    app.host.flags = dict(flags)
    app.host.until_end = until_end
    resolved = app.define().resolve(flags)
    set_up_logging(resolved.settings.log_level, "" if parent_link is None else f"[{parent_link.number}] ")
    api = open_api(app, resolved, until_end=until_end, parent_link=parent_link)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_Worker(app, api, parent_link).run())


def run_child(child: str, target: str, flags: Mapping[str, Any], *, until_end: bool) -> int:
    """One of several processes. Its error is for the process that started it to show; returns the exit code."""
    from tidegate_app.app_loader import load_app

    with ParentLink.parse(child) as parent_link:
        try:
            app = load_app(target)
            run_worker(app, flags, until_end=until_end, parent_link=parent_link)
        except Exception as error:
            parent_link.report(error)
            return 1
    return FINISHED if app.host.finished.is_set() else 0


class _Worker:
    def __init__(self, app: App, api: ApiServer | None, parent_link: ParentLink | None = None) -> None:
        self._app, self._api, self._leash = app, api, parent_link
        self._stop = asyncio.Event()

    async def run(self) -> None:
        """1. Start: the API first, so that it responds while state is restored. 2. Wait. 3. Stop, in any
        case: first the API. 4. Raise what went wrong first."""
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._on_signal, number)
        if self._leash is not None:
            self._leash.watch(self._on_orphaned)
        app = self._app
        try:
            if self._api is not None:
                await self._api.start()
            if await self._or_stop(app.start()):
                if self._api is not None:
                    self._api.announce()
                await self._or_stop(app.wait())
        finally:
            if self._api is not None:
                await self._api.stop()
            await app.stop()
        if app.failure is not None:
            raise app.failure
        if undone := sorted(app.host.uncommitted):
            logger.warning("stopped: what %s had not committed is handled again at the next start", ", ".join(undone))
        else:
            logger.info("stopped: everything that was handled is committed")

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
            click.echo(AT_ONCE, err=True)
            os._exit(128 + number)
        logger.info("%s: stopping; once more stops at once", number.name)
        self._stop.set()

    def _on_orphaned(self) -> None:
        logger.warning("the process that started this one has ended: stopping")
        self._stop.set()


def set_up_logging(level: str, prefix: str = "") -> None:
    """Tidegate's own lines at this level, those of others when something is wrong."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines(prefix))
    debugging = level == "debug"
    logging.basicConfig(level=logging.DEBUG if debugging else logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("tidegate").setLevel(level.upper())
    for noisy in ("mode", "faust", "asyncio", "aiokafka", "uvicorn", "tidegate.faust_host"):
        # The last one logs as services of mode. What makes the app fail is shown by the command itself, on one screen;
        # what aiokafka calls errors are steps on its way to brokers and groups, which it takes by itself.
        logging.getLogger(noisy).setLevel(logging.DEBUG if debugging else logging.CRITICAL)
    if not debugging:
        logging.getLogger("asyncio").setLevel(logging.ERROR)
        logging.getLogger("asyncio").addFilter(_is_about_users_code)


def _is_about_users_code(record: logging.LogRecord) -> bool:
    """Of what asyncio tells: the tasks and callbacks that handlers have left behind, and that fail unheard."""
    trace = record.exc_info[2] if record.exc_info else None
    return any(is_users(frame.filename) for frame in traceback.extract_tb(trace))


class _Lines(logging.Formatter):
    """Information as it is; what is wrong with its level and where it comes from. Before each, who says it."""

    _COLOURS: Final = {logging.WARNING: "yellow", logging.ERROR: "red", logging.CRITICAL: "red"}

    def __init__(self, prefix: str) -> None:
        super().__init__()
        self._prefix = prefix

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        if record.levelno == logging.INFO:
            return self._prefix + text
        label = f"{record.levelname.capitalize()} ({record.name}):"
        colour = self._COLOURS.get(record.levelno)
        return f"{self._prefix}{click.style(label, fg=colour) if sys.stderr.isatty() else label} {text}"
