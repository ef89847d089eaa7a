"""What a child process does: it runs an app as `tidegate worker` does, and feeds it if it is told to."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Coroutine
from importlib import import_module
from typing import Any

import tidegate.host
from tidegate import App, faults
from tidegate.logs.embedded import EmbeddedLog, EmbeddedOptions
from tidegate.settings import Settings
from tidegate.time.clock import Clock

# Imported before the process is copied, so that no child has to.
from examples.tinder_match import app as _tinder  # noqa: F401  # isort: skip
from tests.faults.support import apps as _apps  # noqa: F401  # isort: skip

__all__ = ("live",)

Feed = Callable[[App], Coroutine[Any, Any, None]]


def live(arguments: dict[str, Any]) -> int:
    """Run until told to stop, until the end of a bounded run, or until an error. Returns the exit status.

    app: MODULE:NAME. until_end: a bounded run. log: options of the embedded log. feed: MODULE:NAME of a coroutine function
    that is run beside the app with it."""
    logging.basicConfig(level=logging.WARNING)
    faults.arm(faults.parse(os.environ.get("TIDEGATE_FAULTS", "")))
    if arguments.get("log"):
        _tune_log(EmbeddedOptions(**arguments["log"]))
    return asyncio.run(_run(find(arguments["app"]), arguments))


def find(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)


def _tune_log(options: EmbeddedOptions) -> None:
    def open_log(app: str, settings: Settings, clock: Clock) -> EmbeddedLog:
        return EmbeddedLog(tidegate.host.log_directory(app, settings), options=options, clock=clock.now)

    tidegate.host.open_log = open_log


async def _run(app: App, arguments: dict[str, Any]) -> int:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    app.host.until_end = arguments.get("until_end", False)
    try:
        await app.start()
        feeding = asyncio.ensure_future(find(arguments["feed"])(app)) if arguments.get("feed") else None
        ends = [asyncio.ensure_future(wait()) for wait in (stopped.wait, app.host.finished.wait, app._crashed.wait)]
        await asyncio.wait([*ends, *((feeding,) if feeding else ())], return_when=asyncio.FIRST_COMPLETED)
        if feeding is not None and feeding.done():
            feeding.result()
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await app.stop()
    if app._crash_reason is not None:
        raise app._crash_reason
    return 0
