"""Sessions on an app's log without running its services: as its temporary owner, or beside the workers of a broker."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.checkpoints.coordination.trigger import request_checkpoint
from tidegate.checkpoints.restore.restore import OnProgress, Restore, RestoreOptions, RestoreResult, Target
from tidegate.checkpoints.storage.reader import CheckpointReader
from tidegate.directories import FreeSlots, data_directory, stores_directory
from tidegate.engine.commit.recovery import recover
from tidegate.engine.formats.commit_marker import CommitMarker, encode_marker
from tidegate.engine.runtime.environment import Environment
from tidegate.engine.runtime.metrics import Metrics
from tidegate.engine.runtime.snapshots import NoSnapshots
from tidegate.engine.runtime.state_directory import StateDirectory
from tidegate.engine.task import Task
from tidegate.engine.topology.plan import Plan
from tidegate.engine.topology.run import current_run
from tidegate.errors import LogError, NoWorkerError, UnknownTopicError
from tidegate.host.app_definition import AppDefinition
from tidegate.host.host import open_log
from tidegate.logs.base import Log, TopicSpec
from tidegate.logs.reusable_writer import ReusableWriter
from tidegate.owner_rpc.operations import Operations, Owner, describe_topics, group_by_partition
from tidegate.owner_rpc.protocol import AppendedRecord, ServiceStatus, TopicStatus
from tidegate.owner_rpc.reset import LocalStores, reset_app, topics_of
from tidegate.owner_rpc.rwlock import RWLock
from tidegate.owner_rpc.task_progress import committed_status
from tidegate.query.views import ServiceView, TaskView
from tidegate.settings import Settings
from tidegate.state.layout import MARKER
from tidegate.time.clock import Clock

if TYPE_CHECKING:
    from tidegate.logs.kafka.observer import KafkaObserver

__all__ = ("BrokerLogSession", "LogSession")


class LogSession:
    """Owns an embedded log for the duration of a command, while no worker runs."""

    plan: Plan

    def __init__(self, definition: AppDefinition, settings: Settings, clock: Clock) -> None:
        self._definition, self._settings, self._clock = definition, settings, clock
        self.log: Log = self._open_log()
        self.lock = RWLock()
        self.tasks: Mapping[str, Task] = {}
        self.existing: Mapping[str, TopicSpec] = {}
        """The topics of the log, as of the last refresh."""
        self._views: dict[tuple[str, int], TaskView] = {}

    @property
    def operations(self) -> Operations:
        return Owner(self)

    async def start(self) -> None:
        await self.log.start()
        definition, self.existing = self._definition, await self.log.topics()
        run = await current_run(self.log, definition.id)
        self.plan = Plan(definition.id, definition.services, definition.topics, self._settings, self.existing, run)

    async def stop(self) -> None:
        self._close_stores()
        await self.log.stop()

    async def create_topics(self) -> None:
        """Create all topics that the app needs."""
        await self.log.create(self.plan.specs)
        self.existing = await self.log.topics()

    async def view(self, service: str, key: bytes | None = None) -> ServiceView:
        """Restore the stores to the end of their changelogs. No task starts, and nothing is written to the log."""
        definition = self.plan.services[service]
        only = None if key is None else definition.task_for(key)
        for task in self.plan.tasks:
            if task.definition.name != service or (only is not None and task.number != only):
                continue
            if task.changelog.topic in self.existing and (service, task.number) not in self._views:
                recovered = await recover(task, self._environment())
                self._views[service, task.number] = TaskView(number=task.number, store=recovered.store)
        views = [view for (name, _), view in self._views.items() if name == service]
        return ServiceView(definition, views, self._clock)

    async def reset(self, *, outputs: bool, everything: bool) -> list[str]:
        self._close_stores()
        return await reset_app(self.plan, self.log, self._stores(), outputs=outputs, everything=everything)

    async def checkpoint(self, name: str | None = None, *, stop: bool = False, timeout: float | None = None) -> int:
        raise NoWorkerError(self._definition.id)

    async def check_no_workers(self) -> None:
        """The owner of an embedded log is its only user."""

    async def restore(
        self, reader: CheckpointReader, options: RestoreOptions, on_progress: OnProgress
    ) -> RestoreResult:
        """See `checkpoints.restore.restore`."""
        await self.check_no_workers()
        self._close_stores()
        definition = self._definition
        target = Target(
            app=definition.id,
            services=definition.services,
            topics=definition.topics,
            settings=self._settings,
            log=self.log,
            clock=self._clock,
        )
        with tempfile.TemporaryDirectory(prefix="tidegate-restore-") as scratch:
            restored = await Restore(reader, target, options, Path(scratch) / "fetched", on_progress).run()
        self._local_stores().destroy_all()
        return restored

    def _local_stores(self) -> LocalStores:
        """The stores of this machine's workers."""
        return self._stores()

    def _open_log(self) -> Log:
        return open_log(self._definition.id, self._settings, self._clock)

    def _stores(self) -> StateDirectory:
        return StateDirectory(stores_directory(self._definition.id, self._settings), self._settings)

    def _close_stores(self) -> None:
        while self._views:
            self._views.popitem()[1].store.close()

    def _environment(self) -> Environment:
        return Environment(
            app=self._definition.id,
            run=self.plan.run.id,
            confirm_run=_no_check,
            log=self.log,
            stores=self._stores(),
            snapshots=NoSnapshots(),
            settings=self._settings,
            clock=self._clock,
            metrics=Metrics(),
            wake=lambda: None,
            cache_limit=1000,
        )


class BrokerLogSession(LogSession):
    """Uses a broker's log, beside the app's workers, if any run.

    Changelogs are restored into temporary stores, which are deleted with the session."""

    log: KafkaObserver

    def __init__(self, definition: AppDefinition, settings: Settings, clock: Clock) -> None:
        super().__init__(definition, settings, clock)
        self._scratch: Path | None = None
        self.writer = ReusableWriter(self.log, f"{definition.id}.command.{uuid.uuid4().hex}")
        """Appends are transactions."""
        self._operations = _BrokerOperations(self)

    @property
    def operations(self) -> Operations:
        return self._operations

    async def stop(self) -> None:
        await self.writer.close()
        await super().stop()
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)

    async def reset(self, *, outputs: bool, everything: bool) -> list[str]:
        """1. Require that no worker runs. 2. Delete the stores of the workers on this machine. 3. Empty the topics.
        4. Begin the changelogs with a marker of a new lineage, by which workers on other machines recognise that
        their local stores are outdated. 5. Delete the published offsets that lag is measured by."""
        await self.check_no_workers()
        self._close_stores()
        plan, slots = self.plan, FreeSlots(data_directory(self.plan.app, self._settings))
        emptied = await reset_app(plan, self.log, slots, outputs=outputs, everything=everything, shared=True)
        await self._begin_changelogs()
        await self.log.groups.delete(f"{plan.app}.{service}" for service in plan.services)
        self.existing = await self.log.topics()
        return emptied

    async def checkpoint(self, name: str | None = None, *, stop: bool = False, timeout: float | None = None) -> int:
        if not await self.log.workers(self._definition.id):
            return await super().checkpoint(name, stop=stop, timeout=timeout)
        seconds = timeout or 2 * self._settings.checkpoint_timeout
        return await request_checkpoint(
            self.log, self._definition.id, self._clock, name=name, stop=stop, timeout=seconds
        )

    def _local_stores(self) -> LocalStores:
        return FreeSlots(data_directory(self._definition.id, self._settings))

    async def check_no_workers(self) -> None:
        """LogError: it names the running workers."""
        workers = await self.log.workers(self.plan.app)
        if workers:
            raise LogError(
                f"{self.plan.app} has running workers, and its state cannot be replaced while they run: "
                f"{', '.join(sorted(worker.name for worker in workers))}. Stop them and retry. A killed worker "
                f"stays in the group for {self._settings.kafka_session_timeout:g} s, its session timeout."
            )

    async def _begin_changelogs(self) -> None:
        marker = encode_marker(CommitMarker(lineage=uuid.uuid4().hex, run=self.plan.run.id, inputs={}))
        record = (MARKER, marker, self._clock.now(), ())
        await self.writer.append({task.changelog: [record] for task in self.plan.tasks})

    def _open_log(self) -> KafkaObserver:
        from tidegate.logs.kafka.observer import KafkaObserver

        return KafkaObserver(self._settings.broker, self._settings)

    def _stores(self) -> StateDirectory:
        if self._scratch is None:
            self._scratch = Path(tempfile.mkdtemp(prefix="tidegate-state-"))
        return StateDirectory(self._scratch, self._settings)


class _BrokerOperations(Owner):
    """Operations on a broker's log, restricted to the app's topics."""

    def __init__(self, session: BrokerLogSession) -> None:
        super().__init__(session)
        self._session = session

    async def topics(self) -> list[TopicStatus]:
        session = self._session
        own = topics_of(session.plan, session.existing)
        return await describe_topics(session.log, [session.existing[name] for name in own])

    async def append(self, topic: str, records: list[AppendedRecord]) -> Mapping[int, int]:
        session = self._session
        spec = session.existing.get(topic)
        if spec is None:
            raise UnknownTopicError(topic, topics_of(session.plan, session.existing))
        ends = await session.writer.append(group_by_partition(spec, records))
        return {source.partition: end for source, end in ends.items()}

    async def services(self) -> list[ServiceStatus]:
        session = self._session
        return await committed_status(session.plan, session.log, await session.log.workers(session.plan.app))


async def _no_check() -> None:
    pass
