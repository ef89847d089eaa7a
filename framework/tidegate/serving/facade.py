"""The worker as the HTTP API sees it: one object for state, changes, topics, checkpoints and workers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import NamedTuple

from prometheus_client import CollectorRegistry

from tidegate.engine.keyed_state.timers import DOMAINS
from tidegate.engine.topology.plan import dead_letter_topic
from tidegate.errors import (
    NotQueryableError,
    NotReadyError,
    StoreError,
    UnknownNameError,
    UsageError,
    ValueTooLargeError,
)
from tidegate.functions.definition import ServiceDefinition
from tidegate.functions.topics import TopicDefinition
from tidegate.host.app_definition import AppDefinition
from tidegate.host.host import Host
from tidegate.logs.observer import Worker
from tidegate.owner_rpc.operations import describe_topics
from tidegate.owner_rpc.protocol import TopicStatus
from tidegate.query.key_scan import KeyPage, KeyRange, scan_keys
from tidegate.query.state_reader import StateReader, timers_of
from tidegate.query.views import ServiceView, TaskView
from tidegate.serving.as_of import AsOfView, CheckpointHistory
from tidegate.serving.change_feed import ChangeFeed, RenderCache
from tidegate.serving.idempotency import bucket_of
from tidegate.serving.ingest import SendResult, TopicSender, declared_topics
from tidegate.serving.position_tokens import Position
from tidegate.serving.status import WorkerSummary, worker_state
from tidegate.serving.task_directory import TaskDirectory
from tidegate.serving.tasks import LocalTasks, ReadCommit, readable, view_of
from tidegate.state.declaration import StateDeclaration

__all__ = ("ActorState", "QueryableState", "WorkerFacade")

_TIMER_BYTES = 60
"""The approximate size of a timer as JSON, without its name."""
_DOMAIN_NAMES = {number: name for name, number in DOMAINS.items()}


class QueryableState(NamedTuple):
    """A keyed state of a service, with the reader for its type."""

    service: ServiceDefinition
    reader: StateReader

    @property
    def declaration(self) -> StateDeclaration:
        return self.reader.declaration

    def task_of(self, key: bytes) -> int:
        return self.service.task_for(key)


class ActorState(NamedTuple):
    """All states and timers of a key, as JSON."""

    states: Mapping[str, bytes]
    timers: Sequence[tuple[str, str, int]]
    """Name, domain, time."""


class WorkerFacade:
    def __init__(self, host: Host) -> None:
        self._host = host
        self.tasks = LocalTasks(host)
        self._readers: dict[tuple[str, str], QueryableState] = {}
        self._rendered = RenderCache()
        self._sender = TopicSender(host)
        self.history = CheckpointHistory(host)
        """The app's checkpoints and savepoints."""
        self._directory: TaskDirectory | None = None

    async def close(self) -> None:
        async with AsyncExitStack() as closing:
            closing.push_async_callback(self._sender.close)
            closing.push_async_callback(self.history.close)

    # -- declarations ------------------------------------------------------------------------------------------------
    @property
    def app(self) -> AppDefinition:
        """The declared app; available before the worker runs."""
        return self._host.definition

    @property
    def ready(self) -> bool:
        """Whether its tasks are open and its group membership is confirmed."""
        return self._host.running and self.tasks.engine.membership.session_valid

    @property
    def started(self) -> bool:
        return self._host.running

    @property
    def run(self) -> str:
        """The id of the app's current run: each restore begins a new one."""
        return self.tasks.engine.run_id

    @property
    def registry(self) -> CollectorRegistry:
        """The worker's metrics."""
        return self.tasks.engine.metrics.registry

    def services(self) -> Mapping[str, ServiceDefinition]:
        """The declared services, with the defaults of the plan; without the internal services that shuffle."""
        services = self.tasks.engine.plan.services
        return {name: definition for name, definition in services.items() if definition.part_of is None}

    def service(self, name: str) -> ServiceDefinition:
        return self.tasks.definition(name)

    def dead_letters(self, service: str) -> str | None:
        """The dead letter topic of the service, if its error policy has one."""
        topic = dead_letter_topic(self.tasks.engine.plan.app, self.service(service))
        return None if topic is None else topic.name

    def states(self, service: str) -> Mapping[str, StateDeclaration]:
        """The declared states; internal ones are left out."""
        declared = next((definition.states for definition in self.app.services if definition.name == service), {})
        return {name: state for name, state in self.service(service).states.items() if name in declared}

    def state(self, service: str, state: str) -> QueryableState:
        found = self._readers.get((service, state))
        if found is None:
            definition = self.tasks.definition(service)
            known = self.states(service)
            declaration = known.get(state)
            if declaration is None:
                raise UnknownNameError("state", state, known, of=f"of service {service!r}")
            if not declaration.queryable:
                raise NotQueryableError(service, state)
            if declaration.kind == "operator":
                raise UsageError(f"state {state!r} is an operator state: it belongs to tasks and has no keys to query")
            found = self._readers[service, state] = QueryableState(definition, StateReader(declaration))
        return found

    def readable_states(self, service: str) -> list[QueryableState]:
        """The keyed states that are declared queryable."""
        return [
            self.state(service, name)
            for name, declaration in self.states(service).items()
            if declaration.queryable and declaration.kind != "operator"
        ]

    # -- state -------------------------------------------------------------------------------------------------------
    def read(
        self, state: QueryableState, key: bytes, *, at: str | None = None, max_bytes: int
    ) -> tuple[bytes | None, ReadCommit]:
        """The value of a key, or one entry of its map, as JSON; and the commit that it was read at."""
        task = self.tasks.task(state.service, state.task_of(key))
        view, now = view_of(task), self._host.clock.now()
        try:
            if at is None:
                text = state.reader.value(view, key, now, max_bytes=max_bytes)
            else:
                text = state.reader.entry(view, key, at, now)
            return text, ReadCommit(task, view)
        except StoreError as error:
            raise NotReadyError(task.plan.id, f"its store is being closed ({error})") from error

    def read_many(
        self, state: QueryableState, number: int, keys: list[bytes], *, max_bytes: int
    ) -> tuple[list[bytes | None], ReadCommit]:
        """The values of several keys of one task."""
        task = self.tasks.task(state.service, number)
        view = view_of(task)
        with readable(task.plan.id):
            return state.reader.values(view, keys, self._host.clock.now(), max_bytes=max_bytes), ReadCommit(task, view)

    async def scan(
        self, state: QueryableState, keys: KeyRange, numbers: Iterable[int], *, limit: int, max_bytes: int
    ) -> tuple[KeyPage, list[ReadCommit]]:
        """A page over these local tasks. It includes at least the commits that are returned with it."""
        tasks = [self.tasks.task(state.service, number) for number in numbers]
        with readable(state.service.name):
            reached = [ReadCommit(task, view_of(task)) for task in tasks]
            view = self.tasks.view(state.service, tasks)
            page = await scan_keys(view, state.reader, keys, self._host.clock.now(), limit=limit, max_bytes=max_bytes)
        return page, reached

    def actor(self, service: str, key: bytes, *, max_bytes: int) -> tuple[ActorState, ReadCommit]:
        """All queryable states of a key, and its timers."""
        definition = self.tasks.definition(service)
        task = self.tasks.task(definition, definition.task_for(key))
        view = view_of(task)
        with readable(task.plan.id):
            return self._actor(service, view, key, self._host.clock.now(), max_bytes=max_bytes), ReadCommit(task, view)

    async def actor_past(self, id_: str, service: str, key: bytes, *, max_bytes: int) -> tuple[ActorState, AsOfView]:
        """The same, as of a checkpoint or savepoint."""
        definition = self.tasks.definition(service)
        async with self.history.at(id_, definition, [definition.task_for(key)]) as past:
            (view,) = past.views
            with past.readable():
                return self._actor(service, view, key, past.now, max_bytes=max_bytes), past

    def _actor(self, service: str, view: TaskView, key: bytes, now: int, *, max_bytes: int) -> ActorState:
        states: dict[str, bytes] = {}
        timers: list[tuple[str, str, int]] = []
        left = max_bytes
        for state in self.readable_states(service):
            text = state.reader.value(view, key, now, max_bytes=max_bytes)
            if text is not None:
                states[state.declaration.name] = text
                left -= len(text)
                if left < 0:
                    raise ValueTooLargeError(max_bytes)
        for name, domain, at in timers_of(view, key):
            timers.append((name, _DOMAIN_NAMES[domain], at))
            left -= len(name) + _TIMER_BYTES
            if left < 0:
                raise ValueTooLargeError(max_bytes)
        return ActorState(states, timers)

    async def read_past(
        self, id_: str, state: QueryableState, key: bytes, *, at: str | None, max_bytes: int
    ) -> tuple[bytes | None, AsOfView]:
        """The value of a key, or one entry of its map, as of a checkpoint or savepoint."""
        async with self.history.at(id_, state.service, [state.task_of(key)]) as past:
            (view,) = past.views
            with past.readable():
                if at is None:
                    return state.reader.value(view, key, past.now, max_bytes=max_bytes), past
                return state.reader.entry(view, key, at, past.now), past

    async def scan_past(
        self, id_: str, state: QueryableState, keys: KeyRange, *, limit: int, max_bytes: int
    ) -> tuple[KeyPage, AsOfView]:
        """A page of keys, as of a checkpoint or savepoint."""
        async with self.history.at(id_, state.service, range(state.service.tasks)) as past:
            view = ServiceView(state.service, past.views, self._host.clock)
            with past.readable():
                return await scan_keys(view, state.reader, keys, past.now, limit=limit, max_bytes=max_bytes), past

    def watch(
        self,
        state: QueryableState,
        numbers: Iterable[int],
        *,
        key: bytes | None,
        prefix: bytes,
        max_bytes: int,
        news: asyncio.Event | None = None,
    ) -> ChangeFeed:
        """A feed of the changes of these local tasks."""
        tasks = frozenset(f"{state.service.name}.{number}" for number in numbers)
        engine, now = self.tasks.engine, self._host.clock.now
        return ChangeFeed(
            engine, state.reader, tasks, now, self._rendered, key=key, prefix=prefix, max_bytes=max_bytes, news=news
        )

    async def wait(self, service: ServiceDefinition, number: int, wanted: Position, seconds: float) -> None:
        await self.tasks.wait(service, number, wanted, seconds)

    # -- topics ------------------------------------------------------------------------------------------------------
    def topics(self) -> Mapping[str, TopicDefinition]:
        """The declared topics."""
        return declared_topics(self.tasks.engine.plan)

    async def topic_status(self) -> list[TopicStatus]:
        """The app's topics in the log, with their offsets."""
        self.require_running()
        wanted = self.tasks.engine.plan.topics
        async with self._host.lock.shared():
            existing = await self._host.log.topics()
            return await describe_topics(self._host.log, [existing[name] for name in wanted if name in existing])

    async def send(self, topic: str, lines: Sequence[bytes], *, body: bytes, key: str | None) -> SendResult:
        self.require_running()
        return await self._sender.send(topic, lines, body=body, key=key)

    async def writer_for(self, key: str) -> str:
        """The address of the preferred writer of this idempotency key's bucket. Any worker may write, but two that
        write to one bucket fence each other repeatedly."""
        addresses = sorted(worker.address for worker in await self.workers() if worker.address)
        return addresses[bucket_of(key) % len(addresses)] if addresses else self.address

    def require_running(self) -> None:
        if not self._host.running:
            raise NotReadyError("the log", "the worker is starting or stopping")

    # -- workers -----------------------------------------------------------------------------------------------------
    def status(self) -> WorkerSummary:
        """The status of this worker."""
        return worker_state(self._host)

    async def workers(self) -> list[Worker]:
        """All workers of the app."""
        return await self._task_directory().workers()

    async def owner(self, service: ServiceDefinition, number: int) -> Worker:
        return await self._task_directory().owner(self.tasks.changelog(service, number))

    def invalidate_owners(self) -> None:
        """A worker did not own the task that the directory says it owns: query the group again."""
        self._task_directory().invalidate()

    @property
    def address(self) -> str:
        """The address at which other workers reach this one."""
        return self._host.address

    def _task_directory(self) -> TaskDirectory:
        membership = self.tasks.engine.membership
        if self._directory is None:
            self._directory = TaskDirectory(membership)
        return self._directory
