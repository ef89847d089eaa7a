"""From an app as a savepoint holds it to the run that goes on from it: what goes where.

Everything here is decided from the manifest and the new run's plan; nothing is read or written.

- A service keeps the parallelism that it had, unless another is asked for; it then stands behind a shuffle.
- A key's entries go to the task that the new plan gives the key to. If neither the number of tasks nor the way in which
  keys are placed has changed, each task goes on as it was.
- Positions of public topics stay with whoever reads the topic for a service now: the service itself, or its shuffle.
- Time is the lowest that any of those tasks had come to from which a new one gets something.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from tidegate.checkpoints.storage.manifest import Manifest, TaskSnapshot
from tidegate.engine.formats.commit_marker import ChannelMark, CommitMarker, InputMark, parse_source, source_name
from tidegate.engine.topology.plan import Plan, TaskPlan, mailbox_topic
from tidegate.engine.topology.run import Run
from tidegate.engine.topology.shuffle import BY_KEY, by_key_topic
from tidegate.errors import UsageError
from tidegate.functions.definition import ServiceDefinition
from tidegate.functions.topics import TopicDefinition
from tidegate.keys import KEY_GROUPS, partition_of, task_of_group
from tidegate.logs.base import TopicPartition
from tidegate.state.layout import KEYED, parse_keyed, parse_timer
from tidegate.time.clock import MIN_TIME

__all__ = ("Before", "Moves", "carried_input", "chosen_parallelism", "new_marker", "router")


class Before:
    """The app as the savepoint holds it, under the names that it has now."""

    def __init__(self, manifest: Manifest, app: str) -> None:
        self.manifest, self.app = manifest, app
        self.run = Run(id=manifest.run)
        self._tasks: dict[str, list[TaskSnapshot]] = {}
        for task in sorted(manifest.tasks, key=lambda task: task.number):
            self._tasks.setdefault(self._renamed(task.service), []).append(task)

    @property
    def services(self) -> Mapping[str, list[TaskSnapshot]]:
        return self._tasks

    def tasks(self, service: str) -> list[TaskSnapshot]:
        return self._tasks.get(service, [])

    def shuffled(self, service: str) -> bool:
        """Whether the service had a shuffle."""
        sources = {parse_source(name).topic for task in self.tasks(service) for name in task.marker.inputs}
        return any(self.topic(service, name)[1] for name in sources)

    def topic(self, service: str, name: str) -> tuple[str, bool]:
        """The topic outside of a service from which a record came, and whether a shuffle has placed it already."""
        stem = self.run.name(self.manifest.app, f"{service}.")
        if name.startswith(stem) and name.endswith(f".{BY_KEY}"):
            return self._renamed(name[len(stem) : -len(BY_KEY) - 1]), True
        return self._renamed(name), False

    def original(self, name: str) -> str:
        """What a topic of now was called."""
        return self._renamed(name, back=True)

    def _renamed(self, name: str, *, back: bool = False) -> str:
        """Mailboxes are named for the app, and so are the shuffles that read them."""
        old, new = self.manifest.app, self.app
        if back:
            old, new = new, old
        if old == new or ".mailbox" not in name:
            return name
        for service in {task.service for task in self.manifest.tasks}:
            name = name.replace(mailbox_topic(old, service), mailbox_topic(new, service))
        return name


def chosen_parallelism(
    before: Before, services: Iterable[ServiceDefinition], asked: Mapping[str | None, int]
) -> dict[str, int | None]:
    """For each service of the code that the savepoint has, or that is asked for. None: no shuffle.

    `asked`: by service; None: all others. `services`: with their input topics as they are on the log."""
    services = list(services)
    unknown = sorted(name for name in asked if name is not None and name not in {s.name for s in services})
    if unknown:
        raise UsageError(f"there is no service {unknown[0]!r}; known: {', '.join(s.name for s in services)}")
    chosen: dict[str, int | None] = {}
    for service in services:
        wanted = asked.get(service.name, asked.get(None))
        if wanted is not None and not 1 <= wanted <= KEY_GROUPS:
            raise UsageError(f"a service can have 1 to {KEY_GROUPS} tasks, not {wanted}")
        shuffles = service.execution.parallelism is not None or service.rekeyed
        if before.shuffled(service.name):
            chosen[service.name] = wanted or len(before.tasks(service.name))
        elif wanted is not None and (shuffles or {wanted} != {topic.partitions for topic in service.topics}):
            chosen[service.name] = wanted
        elif wanted is not None:
            chosen[service.name] = None
    return chosen


@dataclass(frozen=True, kw_only=True)
class Moves:
    """Where the entries of one service go."""

    to: int
    """The number of tasks."""
    route: Callable[[bytes], int] | None
    """From a store's key to the task; None: every task keeps what it has."""


def router(before: Before, service: ServiceDefinition) -> Moves:
    count, internal = service.tasks, service.placement.internal
    if count == len(before.tasks(service.name)) and internal == before.shuffled(service.name):
        return Moves(to=count, route=None)
    if internal:
        places = [task_of_group(group, count) for group in range(KEY_GROUPS)]
        return Moves(to=count, route=lambda entry: places[_group(entry)])
    return Moves(to=count, route=lambda entry: partition_of(_key(entry), count))


def _group(entry: bytes) -> int:
    return entry[2 + entry[1]] if entry[:1] == KEYED else entry[1]


def _key(entry: bytes) -> bytes:
    return parse_keyed(entry).key if entry[:1] == KEYED else parse_timer(entry).key


# ---------------------------------------------------------------------------------------------------- positions, time


def new_marker(
    before: Before, plan: Plan, task: TaskPlan, starts: Mapping[TopicPartition, InputMark], *, lineage: str
) -> CommitMarker:
    """`starts`: where public topics are to be read from, whatever the savepoint says."""
    inputs = {}
    for topic, source in task.sources:
        mark = starts.get(source) or _position(before, task, topic, source)
        if mark is not None and not topic.internal:
            inputs[source_name(source)] = mark
    clock = _Clock(before, plan)
    return CommitMarker(
        lineage=lineage,
        run=plan.run.id,
        inputs=inputs,
        watermark=clock.watermark(task),
        channels=clock.channels(task),
    )


def _position(before: Before, task: TaskPlan, topic: TopicDefinition, source: TopicPartition) -> InputMark | None:
    if before.original(topic.name) != topic.name:
        return None  # a mailbox of another app is another topic
    name = source_name(source)
    found = (old.marker.inputs.get(name) for old in _readers(before, task.definition))
    return next((mark for mark in found if mark is not None), None)


def _readers(before: Before, service: ServiceDefinition) -> list[TaskSnapshot]:
    """Who has read the service's public inputs: itself, its shuffles, or the service that it now shuffles for."""
    own = before.tasks(service.name)
    if service.part_of is not None:
        return own or before.tasks(service.part_of)
    shuffles = (before.tasks(f"{service.name}.{topic.name}.{BY_KEY}") for topic in service.topics)
    return [*own, *(task for tasks in shuffles for task in tasks)]


class _Clock:
    """What new tasks know of time."""

    def __init__(self, before: Before, plan: Plan) -> None:
        self._before, self._plan = before, plan

    def watermark(self, task: TaskPlan) -> int:
        own = self._before.tasks(task.definition.name)
        if not own and task.definition.part_of is not None:  # a new shuffle has come as far as its reader, here
            own = [old for old in self._before.tasks(task.definition.part_of) if old.number == task.number]
        if len(own) == task.definition.tasks and task.number < len(own):
            return own[task.number].marker.watermark
        return min((old.marker.watermark for old in own), default=MIN_TIME)

    def channels(self, task: TaskPlan) -> dict[str, ChannelMark]:
        readers = _readers(self._before, task.definition)
        known: dict[str, int] = {}
        for old in readers:
            for name, mark in old.marker.channels.items():
                known[name] = min(mark.watermark, known.get(name, mark.watermark))
        outside = (source_name(source) for topic, source in task.sources if topic.name in task.outside)
        found = {name: known.get(name, MIN_TIME) for name in outside}
        found |= {name: self._sender(task, name, known) for name in task.senders}
        return {name: ChannelMark(watermark=watermark) for name, watermark in found.items() if watermark > MIN_TIME}

    def _sender(self, task: TaskPlan, name: str, known: Mapping[str, int]) -> int:
        """A sender of now: as far as it, or all tasks of its service, had come; a new shuffle, as far as its reader."""
        service, _, number = name.rpartition(".")
        sender, old = self._plan.services[service], self._before.tasks(service)
        if len(old) == sender.tasks:
            return known.get(name, MIN_TIME)
        if old:
            return min((known.get(f"{service}.{task_.number}", MIN_TIME) for task_ in old), default=MIN_TIME)
        if sender.part_of == task.definition.name:
            readers = self._before.tasks(task.definition.name)
            return next((reader.marker.watermark for reader in readers if reader.number == int(number)), MIN_TIME)
        return MIN_TIME


def carried_input(plan: Plan, service: str, topic: str) -> TopicDefinition | None:
    """The input of a service that takes what came from this topic. None: the code reads it no more."""
    definition = plan.services.get(service)
    if definition is None:
        return None
    names = (topic, by_key_topic(plan.app, plan.run, service, topic))
    return next((known for known in definition.topics if known.name in names), None)
