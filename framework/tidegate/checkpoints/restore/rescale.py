"""Maps the tasks of a savepoint to the tasks of a new run: parallelism, routing of keys, positions, watermarks.

Everything here is computed from the manifest and the new run's plan; nothing is read or written.

- A service keeps its parallelism unless another is requested; it then reads through a shuffle.
- A key's entries go to the task that owns the key in the new plan. If neither the number of tasks nor the partitioning
  has changed, each task keeps its entries.
- Positions of public topics go to the task that reads the topic now: the service's, or its shuffle's.
- The watermark of a new task is the minimum over the old tasks that it takes entries from.
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

__all__ = ("Routing", "SavepointApp", "chosen_parallelism", "input_for", "new_marker", "routing")


class SavepointApp:
    """The app in the savepoint, by the names that its services and topics have now."""

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
        """The topic that a record came from before any shuffle, and whether the record has passed the shuffle."""
        stem = self.run.name(self.manifest.app, f"{service}.")
        if name.startswith(stem) and name.endswith(f".{BY_KEY}"):
            return self._renamed(name[len(stem) : -len(BY_KEY) - 1]), True
        return self._renamed(name), False

    def original(self, name: str) -> str:
        """The name in the savepoint of a topic of the new run."""
        return self._renamed(name, back=True)

    def _renamed(self, name: str, *, back: bool = False) -> str:
        """Restored as another app: names of mailboxes, and of shuffles that read them, contain the app's name."""
        old, new = self.manifest.app, self.app
        if back:
            old, new = new, old
        if old == new or ".mailbox" not in name:
            return name
        for service in {task.service for task in self.manifest.tasks}:
            name = name.replace(mailbox_topic(old, service), mailbox_topic(new, service))
        return name


def chosen_parallelism(
    before: SavepointApp, services: Iterable[ServiceDefinition], requested: Mapping[str | None, int]
) -> dict[str, int | None]:
    """By service, for those that are in the savepoint or requested. None: no shuffle.

    `requested`: by service; the key None: all others. `services`: with the input topics' partition counts on the
    log."""
    services = list(services)
    unknown = sorted(name for name in requested if name is not None and name not in {s.name for s in services})
    if unknown:
        raise UsageError(f"there is no service {unknown[0]!r}; known: {', '.join(s.name for s in services)}")
    chosen: dict[str, int | None] = {}
    for service in services:
        wanted = requested.get(service.name, requested.get(None))
        if wanted is not None and not 1 <= wanted <= KEY_GROUPS:
            raise UsageError(f"a service can have 1 to {KEY_GROUPS} tasks, not {wanted}")
        shuffles = service.execution.parallelism is not None or service.shuffled
        if before.shuffled(service.name):
            chosen[service.name] = wanted or len(before.tasks(service.name))
        elif wanted is not None and (shuffles or {wanted} != {topic.partitions for topic in service.topics}):
            chosen[service.name] = wanted
        elif wanted is not None:
            chosen[service.name] = None
    return chosen


@dataclass(frozen=True, kw_only=True)
class Routing:
    """How the entries of one service are routed to its new tasks."""

    tasks: int
    route: Callable[[bytes], int] | None
    """From a store key to the number of its task; None: every task keeps its entries."""


def routing(before: SavepointApp, service: ServiceDefinition) -> Routing:
    count, internal = service.tasks, service.placement.internal
    if count == len(before.tasks(service.name)) and internal == before.shuffled(service.name):
        return Routing(tasks=count, route=None)
    if internal:
        task_of = [task_of_group(group, count) for group in range(KEY_GROUPS)]
        return Routing(tasks=count, route=lambda entry: task_of[_group(entry)])
    return Routing(tasks=count, route=lambda entry: partition_of(_key(entry), count))


def _group(entry: bytes) -> int:
    return entry[2 + entry[1]] if entry[:1] == KEYED else entry[1]


def _key(entry: bytes) -> bytes:
    return parse_keyed(entry).key if entry[:1] == KEYED else parse_timer(entry).key


# ---------------------------------------------------------------------------------------------------- positions, time


def new_marker(
    before: SavepointApp, plan: Plan, task: TaskPlan, starts: Mapping[TopicPartition, InputMark], *, lineage: str
) -> CommitMarker:
    """The commit marker that a new task starts from. `starts`: positions that override the savepoint's."""
    inputs = {}
    for topic, source in task.sources:
        mark = starts.get(source) or _position(before, task, topic, source)
        if mark is not None and not topic.internal:
            inputs[source_name(source)] = mark
    watermarks = _Watermarks(before, plan)
    return CommitMarker(
        lineage=lineage,
        run=plan.run.id,
        inputs=inputs,
        watermark=watermarks.watermark(task),
        channels=watermarks.channels(task),
    )


def _position(before: SavepointApp, task: TaskPlan, topic: TopicDefinition, source: TopicPartition) -> InputMark | None:
    if before.original(topic.name) != topic.name:
        return None  # a mailbox of another app is another topic
    name = source_name(source)
    found = (old.marker.inputs.get(name) for old in _readers(before, task.definition))
    return next((mark for mark in found if mark is not None), None)


def _readers(before: SavepointApp, service: ServiceDefinition) -> list[TaskSnapshot]:
    """The old tasks that have read the service's public inputs: its own, its shuffles', or those of the service that it
    is a shuffle for now."""
    own = before.tasks(service.name)
    if service.part_of is not None:
        return own or before.tasks(service.part_of)
    shuffles = (before.tasks(f"{service.name}.{topic.name}.{BY_KEY}") for topic in service.topics)
    return [*own, *(task for tasks in shuffles for task in tasks)]


class _Watermarks:
    """The watermarks that new tasks start with."""

    def __init__(self, before: SavepointApp, plan: Plan) -> None:
        self._before, self._plan = before, plan

    def watermark(self, task: TaskPlan) -> int:
        own = self._before.tasks(task.definition.name)
        if not own and task.definition.part_of is not None:  # a new shuffle starts at the watermark of its reader
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
        """The watermark of an upstream task: its own, or the minimum of its service if the parallelism has changed; of
        a new shuffle, its reader's."""
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


def input_for(plan: Plan, service: str, topic: str) -> TopicDefinition | None:
    """The input through which a service reads this topic now. None: the code no longer reads it."""
    definition = plan.services.get(service)
    if definition is None:
        return None
    names = (topic, by_key_topic(plan.app, plan.run, service, topic))
    return next((known for known in definition.topics if known.name in names), None)
