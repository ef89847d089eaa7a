"""An app in memory, in an event loop of its own: opening, settling, checkpoints, crashes and restarts.

Sending to the app and reading its results is in `harness`.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Coroutine, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from tidegate.checkpoints.coordination.service import CheckpointService
from tidegate.checkpoints.coordination.trigger import request_checkpoint
from tidegate.checkpoints.restore.restore import Restore, RestoreOptions, RestoreResult, Target
from tidegate.checkpoints.restore.start_positions import Start
from tidegate.checkpoints.storage.checkpoint_storage import CheckpointStorage
from tidegate.checkpoints.storage.manifest import Manifest
from tidegate.checkpoints.storage.reader import CheckpointReader, open_checkpoint
from tidegate.engine.runtime.state_directory import StateDirectory
from tidegate.engine.topology.plan import Plan
from tidegate.engine.topology.run import current_run
from tidegate.engine.worker.engine import Engine
from tidegate.errors import UsageError
from tidegate.functions.definition import ServiceDefinition
from tidegate.host.app_definition import AppDefinition
from tidegate.settings import Settings
from tidegate.testing.helpers import ServiceName, chosen, in_event_loop
from tidegate.testing.memory_log import MemoryLog
from tidegate.time.clock import Instant, ManualClock

__all__ = ("Definable", "DrivenApp")

T = TypeVar("T")

_IN_A_WITH_STATEMENT = "use the harness in a with statement: with AppHarness(app) as harness: ..."


class Definable(Protocol):
    """The part of an App that the harness uses."""

    def define(self) -> AppDefinition: ...


class DrivenApp:
    log: MemoryLog
    checkpoints: CheckpointService | None = None

    def __init__(
        self,
        definition: AppDefinition,
        services: tuple[ServiceDefinition, ...],
        settings: Settings,
        *,
        now: Instant,
        directory: Path | None,
        checkpoints: Path | str | None,
        patience: float,
    ) -> None:
        self._definition, self._services, self._settings = definition, services, settings
        self._directory, self._patience = directory, patience
        self._checkpoints = None if checkpoints is None else str(checkpoints)
        self.clock = ManualClock(now)
        self._runner: asyncio.Runner | None = None
        self._engine: Engine | None = None

    @property
    def engine(self) -> Engine:
        if self._engine is None:
            raise UsageError(_IN_A_WITH_STATEMENT)
        return self._engine

    def __enter__(self) -> Self:
        if in_event_loop():
            raise UsageError("AppHarness runs an event loop of its own: use it in a plain function, not an async one")
        self._runner = asyncio.Runner()
        self.log = MemoryLog(clock=self.clock.now)
        try:
            self.run(self._open())
            self.settle()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    async def _open(self) -> None:
        definition = self._definition
        existing = await self.log.topics()
        run = await current_run(self.log, definition.id)
        plan = Plan(
            definition.id, self._services, definition.topics, self._settings, existing, run, others=definition.services
        )
        stores = StateDirectory(self._directory, self._settings)
        self.checkpoints = None
        if self._checkpoints is not None:
            self.checkpoints = CheckpointService(
                plan, self.log, stores, self._settings, self.clock, url=self._checkpoints, leads=lambda: True
            )
        self._engine = Engine(plan, self.log, stores, self._settings, clock=self.clock, snapshots=self.checkpoints)
        await self._engine.start()

    def _close(self) -> None:
        runner, self._runner = self._runner, None
        if runner is None:
            return
        try:
            if self._engine is not None:
                runner.run(self._engine.close_tasks(commit=False))
        finally:
            runner.close()

    # -- processing --------------------------------------------------------------------------------------------------
    def settle(self, *, wait: bool = True, commit: bool = True) -> None:
        """Read, handle, commit and pass on between services until nothing is left to do.

        wait: wait for suspended handlers, too; otherwise they stay suspended. commit: whether to commit."""
        self.run(self._settle(wait, commit))

    async def _settle(self, wait: bool, commit: bool) -> None:
        limit = asyncio.timeout(self._patience)
        try:
            async with limit:
                await self.engine.settle(wait=wait, commit=commit)
        except TimeoutError:
            if not limit.expired():
                raise
            raise UsageError(
                f"handlers are still suspended after {self._patience:g} s. They may be waiting for the test itself: "
                f"send with settle=False, then settle(wait=False). Or raise patience=."
            ) from None

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the harness's event loop, for example one that a suspended handler waits for."""
        if self._runner is None:
            coroutine.close()
            raise UsageError(_IN_A_WITH_STATEMENT)
        return self._runner.run(coroutine)

    def call(self, function: Callable[[], T]) -> T:
        """Call a function in the harness's event loop."""

        async def calling() -> T:
            return function()

        return self.run(calling())

    # -- checkpoints -------------------------------------------------------------------------------------------------
    def checkpoint(self, name: str | None = None) -> Manifest:
        """Take a checkpoint of the app's current state; with a name, a savepoint. Unhandled records stay unhandled."""
        if self.checkpoints is None:
            raise UsageError(
                "the harness has no checkpoint storage; give it one: AppHarness(app, checkpoints=DIRECTORY)"
            )
        return self.run(self._checkpoint(self.checkpoints, name))

    async def _checkpoint(self, checkpoints: CheckpointService, name: str | None) -> Manifest:
        request = request_checkpoint(self.log, self.engine.plan.app, self.clock, name=name, timeout=self._patience)
        asking = asyncio.ensure_future(request)
        while not asking.done():
            await self.step_checkpoint()
            await asyncio.sleep(0.001)  # no busy loop: the upload threads need the GIL
        epoch = await asking
        storage = await checkpoints.storage()
        return storage.manifest(name or epoch)

    async def step_checkpoint(self) -> None:
        """One step of a checkpoint in progress: the leader's part, and the commits that it triggers."""
        assert self.checkpoints is not None  # noqa: S101  checked by the caller
        await self.checkpoints.coordinator.step()
        await self.engine.poll_control(timeout=0)
        await self.engine.commit_epochs()

    def restore(
        self,
        id: str | int | CheckpointReader,
        *,
        app: Definable | None = None,
        partitions: int | Mapping[str, int] | None = None,
        starts: Mapping[str, Start] | None = None,
        allow_dropped: bool = False,
        settle: bool = True,
    ) -> RestoreResult:
        """Begin a new run from a savepoint, by its name, or a checkpoint, by its number; or from one of another
        harness. app: another version of the code. partitions: the number of tasks, for all services or by name."""
        self.run(self.engine.close_tasks(commit=False))
        if app is not None:
            self._definition = app.define()
            self._services = self._definition.services
        asked: dict[str | None, int] = {None: partitions} if isinstance(partitions, int) else {}
        asked.update(partitions if isinstance(partitions, Mapping) else {})
        options = RestoreOptions(partitions=asked, starts=starts or {}, allow_dropped=allow_dropped)
        try:
            return self.run(self._restore(id, options))
        finally:
            self.run(self._open())
            if settle:
                self.settle()

    async def _restore(self, id: str | int | CheckpointReader, options: RestoreOptions) -> RestoreResult:
        reader = id if isinstance(id, CheckpointReader) else self.savepoint(id)
        target = Target(
            app=self._definition.id,
            services=tuple(self._services),
            topics=self._definition.topics,
            settings=self._settings,
            log=self.log,
            clock=self.clock,
        )
        with tempfile.TemporaryDirectory() as scratch:
            return await Restore(reader, target, options, Path(scratch) / "fetched", lambda *_: None).run()

    def savepoint(self, id: str | int) -> CheckpointReader:
        """The contents of a savepoint or checkpoint."""
        if self._checkpoints is None:
            raise UsageError(
                "the harness has no checkpoint storage; give it one: AppHarness(app, checkpoints=DIRECTORY)"
            )
        return open_checkpoint(CheckpointStorage(self._checkpoints, self._definition.id), id)

    # -- restarts ----------------------------------------------------------------------------------------------------
    def restart(self) -> None:
        """Stop in order and start again over the same log: state in memory is restored from the changelogs."""
        self.run(self.engine.close_tasks(commit=True))
        self.run(self._open())
        self.settle()

    def crash(self) -> None:
        """Lose everything that is not committed, and start again over the same log."""
        self.run(self.engine.close_tasks(commit=False))
        self.run(self._open())
        self.settle()

    def upgrade(self, app: Definable, *, services: Iterable[ServiceName] | None = None) -> None:
        """Stop in order and continue with another version of the app, over the same log."""
        self.run(self.engine.close_tasks(commit=True))
        self._definition = app.define()
        self._services = chosen(self._definition, services)
        self.run(self._open())
        self.settle()
