"""What a child process does: it is `tidegate worker`, with a log tuned for the test and something to feed it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from importlib import import_module
from typing import Any

import fsspec.implementations.local
import uvloop

import tidegate.directories
import tidegate.host.host
import tidegate_app.actions.savepoint
import tidegate_app.app_loader
import tidegate_app.commands.savepoint
import tidegate_app.commands.worker
import tidegate_app.process_pool
import tidegate_app.worker
from examples.tinder_match import app as tinder
from tests.faults.support import apps
from tidegate import App, faults
from tidegate.functions.topics import TopicDefinition
from tidegate.host.app_definition import AppDefinition
from tidegate.host.host import Host
from tidegate.logs.embedded import EmbeddedLog, EmbeddedOptions
from tidegate.logs.kafka import KafkaLog, membership
from tidegate.settings import Settings
from tidegate.time.clock import Clock, SystemClock
from tidegate_app.cli import main

__all__ = ("find", "live", "renamed")

Feed = Callable[[App], Coroutine[Any, Any, None]]

LOADED = (
    apps,
    tinder,
    fsspec.implementations.local,
    uvloop,
    KafkaLog,
    membership,
    tidegate_app.commands.savepoint,
    tidegate_app.commands.worker,
    tidegate_app.app_loader,
    tidegate_app.process_pool,
    tidegate_app.actions.savepoint,
    tidegate_app.worker,
)
"""What children use, imported before the process is copied."""


def live(arguments: dict[str, Any]) -> int:
    """Run until a stop signal, the end of a bounded run, or an error. Returns the exit status.

    app: MODULE:NAME. prefix: put before its name and those of its topics. until_end: a bounded run. log: options of
    the embedded log. feed: MODULE:NAME of a coroutine function that runs beside the services and is given the app.
    jumps: jumps of the clock. command: another command instead, word by word; the other options are ignored."""
    faults.arm(faults.parse(os.environ.get("TIDEGATE_FAULTS", "")))
    if arguments.get("command"):
        return _run(arguments["command"])
    app: App = find(arguments["app"])
    clock = JumpingClock(arguments.get("jumps") or [])
    feed = find(arguments["feed"]) if arguments.get("feed") else None
    app.host = FedHost(app, feed, lambda: renamed(app.define(), arguments.get("prefix", "")), clock=clock)
    if arguments.get("log"):
        _tune_log(EmbeddedOptions(**arguments["log"]))
    return _run(["worker", arguments["app"], *(("--until-end",) if arguments.get("until_end") else ())])


def _run(command: list[str]) -> int:
    try:
        main(command)
    except SystemExit as exit_:
        return int(exit_.code or 0)


def find(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)


class FedHost(Host):
    """A host beside which a feed runs; what that fails with fails the worker."""

    def __init__(self, app: App, feed: Feed | None, define: Callable[[], AppDefinition], *, clock: Clock) -> None:
        super().__init__(define, clock=clock)
        self._app, self._feed = app, feed

    async def run(self) -> None:
        if self._feed is None:
            return await super().run()
        running, feeding = asyncio.ensure_future(super().run()), asyncio.ensure_future(self._feed(self._app))
        try:
            await asyncio.wait((running, feeding), return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                await feeding
            await running
        finally:
            for task in (running, feeding):
                task.cancel()
            await asyncio.wait((running, feeding))


class JumpingClock(SystemClock):
    """A clock that is set, perhaps more than once."""

    def __init__(self, jumps: list[tuple[float, float]]) -> None:
        """`jumps`: after how many seconds of this run, by how many seconds the clock is off from then on."""
        self._began, self._jumps, self._done = time.monotonic(), jumps, 0

    def now(self) -> int:
        passed = time.monotonic() - self._began
        off = [by for after, by in self._jumps if passed >= after]
        while self._done < len(off):
            self._done += 1
            faults.record("clock:jump")
        return super().now() + (round(off[-1] * 1000) if off else 0)


def renamed(definition: AppDefinition, prefix: str) -> AppDefinition:
    """The same app under another name, with topics of its own: so that many can share a broker."""

    def topic(known: TopicDefinition) -> TopicDefinition:
        return replace(known, name=f"{prefix}{known.name}")

    services = [
        replace(
            service.with_input_topics(topic),
            outputs={name: topic(known) for name, known in service.outputs.items()},
        )
        for service in definition.services
    ]
    return replace(
        definition,
        id=f"{prefix}{definition.id}",
        services=tuple(services),
        topics=tuple(map(topic, definition.topics)),
    )


def _tune_log(options: EmbeddedOptions) -> None:
    def open_log(app: str, settings: Settings, clock: Clock) -> EmbeddedLog:
        return EmbeddedLog(tidegate.directories.data_directory(app, settings), options=options, clock=clock.now)

    tidegate.host.host.open_log = open_log


if __name__ == "__main__":
    sys.exit(live(json.loads(sys.argv[1])))
