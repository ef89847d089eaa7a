"""What a child process does: it is `tidegate worker`, with a log tuned for the test and something to feed it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Coroutine
from importlib import import_module
from typing import Any

import uvloop

import tidegate.host
import tidegate_app.commands.worker
import tidegate_app.loading
import tidegate_app.worker
from examples.tinder_match import app as tinder
from tests.faults.support import apps
from tidegate import App, faults
from tidegate.logs.embedded import EmbeddedLog, EmbeddedOptions
from tidegate.settings import Settings
from tidegate.time.clock import Clock
from tidegate_app.cli import main

__all__ = ("find", "live")

Feed = Callable[[App], Coroutine[Any, Any, None]]

LOADED = (apps, tinder, uvloop, tidegate_app.commands.worker, tidegate_app.loading, tidegate_app.worker)
"""What children use, imported before the process is copied."""


def live(arguments: dict[str, Any]) -> int:
    """Run until told to stop, until the end of a bounded run, or until an error. Returns the exit status.

    app: MODULE:NAME. until_end: a bounded run. log: options of the embedded log. feed: MODULE:NAME of a coroutine
    function that runs beside the services and is given the app."""
    faults.arm(faults.parse(os.environ.get("TIDEGATE_FAULTS", "")))
    if arguments.get("log"):
        _tune_log(EmbeddedOptions(**arguments["log"]))
    if arguments.get("feed"):
        find(arguments["app"]).task(find(arguments["feed"]))
    try:
        main(["worker", arguments["app"], *(("--until-end",) if arguments.get("until_end") else ())])
    except SystemExit as exit_:
        return int(exit_.code or 0)


def find(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)


def _tune_log(options: EmbeddedOptions) -> None:
    def open_log(app: str, settings: Settings, clock: Clock) -> EmbeddedLog:
        return EmbeddedLog(tidegate.host.data_directory(app, settings), options=options, clock=clock.now)

    tidegate.host.open_log = open_log


if __name__ == "__main__":
    sys.exit(live(json.loads(sys.argv[1])))
