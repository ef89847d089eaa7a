"""A worker, as whoever serves it to others sees it."""

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
from tidegate.serving.as_of import History, Past
from tidegate.serving.change_feed import ChangeFeed, Rendered
from tidegate.serving.idempotency import bucket_of
from tidegate.serving.ingest import Sent, TopicSender, open_topics
from tidegate.serving.position_tokens import Position
from tidegate.serving.status import WorkerSummary, worker_state
from tidegate.serving.task_directory import TaskDirectory
from tidegate.serving.tasks import LocalTasks, Reached, readable, view_of
from tidegate.state.declaration import StateDeclaration

__all__ = ("Actor", "StateOf", "WorkerFacade")

_TIMER_BYTES = 60
"""Of a timer as JSON, without its name, about."""
_DOMAIN_NAMES = {number: name for name, number in DOMAINS.items()}


class StateOf(NamedTuple):
    """A state of a service, ready to be read."""

    service: ServiceDefinition
    reader: StateReader

    @property
    def declaration(self) -> StateDeclaration:
        return self.reader.declaration

    def task_of(self, key: bytes) -> int:
        return self.service.task_for(key)


class Actor(NamedTuple):
    """All that is known of a key, as JSON."""

    states: Mapping[str, bytes]
    timers: Sequence[tuple[str, str, int]]
    """Name, domain, time."""


class WorkerFacade:
    def __init__(self, host: Host) -> None:
        self._host = host
        self.tasks = LocalTasks(host)
        self._readers: dict[tuple[str, str], StateOf] = {}
        self._rendered = Rendered()
        self._sender = TopicSender(host)
        self.history = History(host)
        """Its checkpoints and savepoints."""
        self._directory: TaskDirectory | None = None

    async def close(self) -> None:
        async with AsyncExitStack() as closing:
            closing.push_async_callback(self._sender.close)
            closing.push_async_callback(self.history.close)

    # -- what there is -----------------------------------------------------------------------------------------------
    @property
    def app(self) -> AppDefinition:
        """What the code declares; known before the worker runs."""
        return self._host.definition

    @property
    def ready(self) -> bool:
        """Its tasks are open, and the group knows it."""
        return self._host.running and self.tasks.engine.membership.fresh

    @property
    def started(self) -> bool:
        return self._host.running

    @property
    def run(self) -> str:
        """Which life of the app this is."""
        return self.tasks.engine.run_id

    @property
    def registry(self) -> CollectorRegistry:
        """What this worker counts and measures."""
        return self.tasks.engine.metrics.registry

    def services(self) -> Mapping[str, ServiceDefinition]:
        """Those that the code declares, with everything filled in."""
        services = self.tasks.engine.plan.services
        return {name: definition for name, definition in services.items() if definition.part_of is None}

    def service(self, name: str) -> ServiceDefinition:
        return self.tasks.definition(name)

    def dead_letters(self, service: str) -> str | None:
        """The topic for what the service gives up, if it has one."""
        topic = dead_letter_topic(self.tasks.engine.plan.app, self.service(service))
        return None if topic is None else topic.name

    def states(self, service: str) -> Mapping[str, StateDeclaration]:
        """Those that the code declares: what Tidegate keeps beside them is nobody's business."""
        declared = next((one.states for one in self.app.services if one.name == service), {})
        return {name: it for name, it in self.service(service).states.items() if name in declared}

    def state(self, service: str, state: str) -> StateOf:
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
                raise UsageError(f"state {state!r} belongs to tasks, not to keys: it has no key to look for")
            found = self._readers[service, state] = StateOf(definition, StateReader(declaration))
        return found

    def readable_states(self, service: str) -> list[StateOf]:
        """Those that belong to keys, and are not kept inside."""
        known = self.states(service)
        return [self.state(service, name) for name, it in known.items() if it.queryable and it.kind != "operator"]

    # -- state -------------------------------------------------------------------------------------------------------
    def read(self, state: StateOf, key: bytes, *, at: str | None = None, most: int) -> tuple[bytes | None, Reached]:
        """A key's value, or one entry of its map, as JSON; and of which commit it is."""
        task = self.tasks.task(state.service, state.task_of(key))
        view, now = view_of(task), self._host.clock.now()
        try:
            if at is None:
                text = state.reader.value(view, key, now, most=most)
            else:
                text = state.reader.entry(view, key, at, now)
            return text, Reached(task, view)
        except StoreError as error:
            raise NotReadyError(task.plan.id, f"its store is being closed ({error})") from error

    def read_many(
        self, state: StateOf, number: int, keys: list[bytes], *, most: int
    ) -> tuple[list[bytes | None], Reached]:
        """The values of keys of one task."""
        task = self.tasks.task(state.service, number)
        view = view_of(task)
        with readable(task.plan.id):
            return state.reader.values(view, keys, self._host.clock.now(), most=most), Reached(task, view)

    async def scan(
        self, state: StateOf, keys: KeyRange, numbers: Iterable[int], *, limit: int, most: int
    ) -> tuple[KeyPage, list[Reached]]:
        """A page over these tasks, all of which are here. It holds at least the commits that are returned with it."""
        tasks = [self.tasks.task(state.service, number) for number in numbers]
        with readable(state.service.name):
            reached = [Reached(task, view_of(task)) for task in tasks]
            view = self.tasks.view(state.service, tasks)
            page = await scan_keys(view, state.reader, keys, self._host.clock.now(), limit=limit, most=most)
        return page, reached

    def actor(self, service: str, key: bytes, *, most: int) -> tuple[Actor, Reached]:
        """All states that may be read, and the timers."""
        definition = self.tasks.definition(service)
        task = self.tasks.task(definition, definition.task_for(key))
        view = view_of(task)
        with readable(task.plan.id):
            return self._actor(service, view, key, self._host.clock.now(), most=most), Reached(task, view)

    async def actor_past(self, id_: str, service: str, key: bytes, *, most: int) -> tuple[Actor, Past]:
        """The same, as of a checkpoint or savepoint."""
        definition = self.tasks.definition(service)
        async with self.history.at(id_, definition, [definition.task_for(key)]) as past:
            (view,) = past.views
            with past.readable():
                return self._actor(service, view, key, past.now, most=most), past

    def _actor(self, service: str, view: TaskView, key: bytes, now: int, *, most: int) -> Actor:
        states: dict[str, bytes] = {}
        timers: list[tuple[str, str, int]] = []
        left = most
        for state in self.readable_states(service):
            text = state.reader.value(view, key, now, most=most)
            if text is not None:
                states[state.declaration.name] = text
                left -= len(text)
                if left < 0:
                    raise ValueTooLargeError(most)
        for name, domain, at in timers_of(view, key):
            timers.append((name, _DOMAIN_NAMES[domain], at))
            left -= len(name) + _TIMER_BYTES
            if left < 0:
                raise ValueTooLargeError(most)
        return Actor(states, timers)

    async def read_past(
        self, id_: str, state: StateOf, key: bytes, *, at: str | None, most: int
    ) -> tuple[bytes | None, Past]:
        """A key's value, or one entry of its map, as of a checkpoint or savepoint."""
        async with self.history.at(id_, state.service, [state.task_of(key)]) as past:
            (view,) = past.views
            with past.readable():
                if at is None:
                    return state.reader.value(view, key, past.now, most=most), past
                return state.reader.entry(view, key, at, past.now), past

    async def scan_past(
        self, id_: str, state: StateOf, keys: KeyRange, *, limit: int, most: int
    ) -> tuple[KeyPage, Past]:
        """A page of keys, as of a checkpoint or savepoint."""
        async with self.history.at(id_, state.service, range(state.service.tasks)) as past:
            view = ServiceView(state.service, past.views, self._host.clock)
            with past.readable():
                return await scan_keys(view, state.reader, keys, past.now, limit=limit, most=most), past

    def watch(
        self,
        state: StateOf,
        numbers: Iterable[int],
        *,
        key: bytes | None,
        prefix: bytes,
        most: int,
        news: asyncio.Event | None = None,
    ) -> ChangeFeed:
        """The changes of these tasks, which are here."""
        tasks = frozenset(f"{state.service.name}.{number}" for number in numbers)
        engine, now = self.tasks.engine, self._host.clock.now
        return ChangeFeed(
            engine, state.reader, tasks, now, self._rendered, key=key, prefix=prefix, most=most, news=news
        )

    async def wait(self, service: ServiceDefinition, number: int, wanted: Position, seconds: float) -> None:
        await self.tasks.wait(service, number, wanted, seconds)

    # -- topics ------------------------------------------------------------------------------------------------------
    def topics(self) -> Mapping[str, TopicDefinition]:
        """Those that the code declares."""
        return open_topics(self.tasks.engine.plan)

    async def topic_status(self) -> list[TopicStatus]:
        """Those of the app, and how far each reaches."""
        self.require_running()
        wanted = self.tasks.engine.plan.topics
        async with self._host.gate.together():
            existing = await self._host.log.topics()
            return await describe_topics(self._host.log, [existing[name] for name in wanted if name in existing])

    async def send(self, topic: str, lines: Sequence[bytes], *, body: bytes, key: str | None) -> Sent:
        self.require_running()
        return await self._sender.send(topic, lines, body=body, key=key)

    async def writer_for(self, key: str) -> str:
        """The address of the worker that best writes under this idempotency key. Any may; but two that write in one
        bucket fence each other, again and again."""
        addresses = sorted(worker.address for worker in await self.workers() if worker.address)
        return addresses[bucket_of(key) % len(addresses)] if addresses else self.address

    def require_running(self) -> None:
        if not self._host.running:
            raise NotReadyError("the log", "the worker is starting, or about to stop")

    # -- workers -----------------------------------------------------------------------------------------------------
    def status(self) -> WorkerSummary:
        """Of this worker."""
        return worker_state(self._host)

    async def workers(self) -> list[Worker]:
        """All of the app."""
        return await self._known().workers()

    async def owner(self, service: ServiceDefinition, number: int) -> Worker:
        return await self._known().owner(self.tasks.changelog(service, number))

    def doubt(self) -> None:
        """What the directory says is wrong: ask the group anew."""
        self._known().doubt()

    @property
    def address(self) -> str:
        """Where others reach this worker."""
        return self._host.address

    def _known(self) -> TaskDirectory:
        membership = self.tasks.engine.membership
        if self._directory is None:
            self._directory = TaskDirectory(membership)
        return self._directory
