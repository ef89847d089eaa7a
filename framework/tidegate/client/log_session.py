"""Using an app's log without running its services: as its owner for a while, or beside everybody else on a broker."""

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
from tidegate.owner_rpc.operations import Operations, Owner, by_partition, describe_topics
from tidegate.owner_rpc.protocol import AppendedRecord, ServiceStatus, TopicStatus
from tidegate.owner_rpc.reset import Destroyed, start_anew, topics_of
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
    """Owns a log, for a command, while no worker runs."""

    plan: Plan

    def __init__(self, definition: AppDefinition, settings: Settings, clock: Clock) -> None:
        self._definition, self._settings, self._clock = definition, settings, clock
        self.log: Log = self._open_log()
        self.gate = RWLock()
        self.tasks: Mapping[str, Task] = {}
        self.existing: Mapping[str, TopicSpec] = {}
        """The topics of the log, as they were when they were last looked at."""
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
        """All that the app needs."""
        await self.log.create(self.plan.specs)
        self.existing = await self.log.topics()

    async def view(self, service: str, key: bytes | None = None) -> ServiceView:
        """Bring the stores up to the end of their changelogs, and nothing else: no task starts, nothing is written."""
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
        return await start_anew(self.plan, self.log, self._stores(), outputs=outputs, everything=everything)

    async def checkpoint(self, name: str | None = None, *, stop: bool = False, timeout: float | None = None) -> int:
        raise NoWorkerError(self._definition.id)

    async def check_nobody_works(self) -> None:
        """Who owns an embedded log is alone with it."""

    async def restore(
        self, reader: CheckpointReader, options: RestoreOptions, on_progress: OnProgress
    ) -> RestoreResult:
        """See `checkpoints.restoring`."""
        await self.check_nobody_works()
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

    def _local_stores(self) -> Destroyed:
        """What workers on this machine have on disk."""
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
            confirm_run=_nothing,
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
    """Uses a log that nobody owns, beside the workers of the app, if any run.

    What it reads of changelogs goes into stores of its own, which are gone when it ends."""

    log: KafkaObserver

    def __init__(self, definition: AppDefinition, settings: Settings, clock: Clock) -> None:
        super().__init__(definition, settings, clock)
        self._scratch: Path | None = None
        self.writer = ReusableWriter(self.log, f"{definition.id}.command.{uuid.uuid4().hex}")
        """What is sent at a time is there together or not at all."""
        self._operations = _Guest(self)

    @property
    def operations(self) -> Operations:
        return self._operations

    async def stop(self) -> None:
        await self.writer.close()
        await super().stop()
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)

    async def reset(self, *, outputs: bool, everything: bool) -> list[str]:
        """1. Nobody may work with the app. 2. Remove the stores of its workers on this machine. 3. Empty the topics.
        4. Begin the changelogs with a marker: by its lineage workers on other machines know that what they have in
        their stores is of another life. 5. Forget the positions that lag is measured by."""
        await self.check_nobody_works()
        self._close_stores()
        plan, slots = self.plan, FreeSlots(data_directory(self.plan.app, self._settings))
        emptied = await start_anew(plan, self.log, slots, outputs=outputs, everything=everything, shared=True)
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

    def _local_stores(self) -> Destroyed:
        return FreeSlots(data_directory(self._definition.id, self._settings))

    async def check_nobody_works(self) -> None:
        """LogError names those who do."""
        workers = await self.log.workers(self.plan.app)
        if workers:
            raise LogError(
                f"{self.plan.app} has workers, and its state cannot be replaced under them: "
                f"{', '.join(sorted(worker.name for worker in workers))}. Stop them and try again. One that was killed "
                f"counts for {self._settings.kafka_session_timeout:g} s more, its session timeout."
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


class _Guest(Owner):
    """Operations on a broker's log: of what is there, only what is the app's."""

    def __init__(self, visit: BrokerLogSession) -> None:
        super().__init__(visit)
        self._visit = visit

    async def topics(self) -> list[TopicStatus]:
        visit = self._visit
        own = topics_of(visit.plan, visit.existing)
        return await describe_topics(visit.log, [visit.existing[name] for name in own])

    async def append(self, topic: str, records: list[AppendedRecord]) -> Mapping[int, int]:
        visit = self._visit
        spec = visit.existing.get(topic)
        if spec is None:
            raise UnknownTopicError(topic, topics_of(visit.plan, visit.existing))
        ends = await visit.writer.append(by_partition(spec, records))
        return {source.partition: end for source, end in ends.items()}

    async def services(self) -> list[ServiceStatus]:
        visit = self._visit
        return await committed_status(visit.plan, visit.log, await visit.log.workers(visit.plan.app))


async def _nothing() -> None:
    pass
