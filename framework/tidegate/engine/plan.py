"""From declared services to tasks: re-keying, internal topics, who reads whose output."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tidegate.codecs import codec_for
from tidegate.errors import DefinitionError
from tidegate.functions.policies import DeadLetter, Retry
from tidegate.functions.service import ServiceDefinition
from tidegate.functions.topics import TopicDefinition
from tidegate.logs.base import TopicPartition, TopicSpec
from tidegate.settings import Settings
from tidegate.time.sources import EventTime

__all__ = ("Plan", "TaskPlan", "dead_letter_topic", "rekeyed")


@dataclass(frozen=True, kw_only=True)
class TaskPlan:
    """One task, and its surroundings."""

    definition: ServiceDefinition
    number: int
    changelog: TopicPartition
    control: TopicPartition
    dead_letters: TopicDefinition | None
    outside: frozenset[str]
    """Input topics that no service of this app writes."""
    senders: tuple[str, ...]
    """The tasks upstream whose progress counts here."""
    has_readers: bool
    """Whether services downstream wait for this task's progress."""

    @property
    def id(self) -> str:
        return f"{self.definition.name}.{self.number}"

    @property
    def sources(self) -> Iterator[tuple[TopicDefinition, TopicPartition]]:
        return ((topic, TopicPartition(topic.name, self.number)) for topic in self.definition.inputs)


def dead_letter_topic(app: str, service: ServiceDefinition) -> TopicDefinition | None:
    policy = service.errors.then if isinstance(service.errors, Retry) else service.errors
    if not isinstance(policy, DeadLetter):
        return None
    # One partition: they are few, and the shuffles before a service share the topic with it.
    return TopicDefinition(
        name=f"{app}.{service.rekeys or service.name}.dead-letters", codec=codec_for(bytes), partitions=1
    )


def rekeyed(app: str, service: ServiceDefinition) -> list[ServiceDefinition]:
    """The service behind a shuffle: per input topic a service that places its records by the new key."""
    if service.key_by is None:
        return [service]
    shuffles, inputs = [], []
    partitions = max(topic.partitions for topic in service.inputs)
    for topic, forward in zip(service.inputs, service.key_by, strict=True):
        internal = replace(
            topic,
            name=f"{app}.{service.name}.{topic.name}.by-key",
            key=None,
            key_type=service.key_type,
            partitions=partitions,
            time=EventTime(),  # the shuffle has found the time; it is the record's timestamp
            retention_bytes=None,
            compact=False,
            internal=True,
        )
        inputs.append(internal)
        shuffles.append(
            ServiceDefinition(
                name=f"{service.name}.{topic.name}.by-key",
                inputs=(topic,),
                outputs={internal.name: internal},
                states={},
                errors=service.errors,
                guarantee=service.guarantee,
                rekeys=service.name,
                forward=forward,
            )
        )
    return [*shuffles, replace(service, inputs=tuple(inputs), key_by=None)]


class Plan:
    """All services of an app, checked, and divided into tasks."""

    def __init__(
        self,
        app: str,
        services: Iterable[ServiceDefinition],
        topics: Iterable[TopicDefinition],
        settings: Settings,
        existing: Mapping[str, TopicSpec],
    ) -> None:
        """`existing`: what the log has; a topic that does not say how many partitions it wants takes what is there."""
        self.app, self._settings, self._existing = app, settings, existing
        self.services: Mapping[str, ServiceDefinition] = {
            service.name: service for declared in services for service in rekeyed(app, self._with_topics(declared))
        }
        self.declared = {topic.name: self._complete(topic) for topic in topics}
        self.control = TopicPartition(f"{app}.control", 0)
        for service in self.services.values():
            self._check(service)
        self._edges = self._find_edges()
        self._feedback = set(_back_edges(self._edges))

    def _complete(self, topic: TopicDefinition) -> TopicDefinition:
        """With everything filled in that the declaration leaves to the settings or to the log."""
        known = self._existing.get(topic.name)
        partitions = topic.partitions or (known.partitions if known is not None else self._settings.partitions)
        retention = topic.retention_ms
        if retention is None and not topic.compact and self._settings.retention_hours > 0:
            retention = round(self._settings.retention_hours * 3_600_000)
        return replace(topic, partitions=partitions, retention_ms=retention)

    def _with_topics(self, service: ServiceDefinition) -> ServiceDefinition:
        return replace(
            service,
            inputs=tuple(map(self._complete, service.inputs)),
            outputs={name: self._complete(topic) for name, topic in service.outputs.items()},
        )

    def _check(self, service: ServiceDefinition) -> None:
        counts = {topic.name: topic.partitions for topic in service.inputs}
        if len(set(counts.values())) > 1:
            described = ", ".join(f"{name} has {count}" for name, count in counts.items())
            raise DefinitionError(
                f"service {service.name!r} reads topics that are not co-partitioned: {described}. "
                f"Give them the same number of partitions, or the service key_by=... to place the records anew."
            )

    def _find_edges(self) -> dict[str, list[str]]:
        """From each service to those that read what it emits."""
        return {
            sender.name: [
                reader.name
                for reader in self.services.values()
                if {topic.name for topic in reader.inputs} & {topic.name for topic in sender.outputs.values()}
            ]
            for sender in self.services.values()
        }

    @property
    def tasks(self) -> list[TaskPlan]:
        return [self._task(service, number) for service in self.services.values() for number in range(service.tasks)]

    def _task(self, service: ServiceDefinition, number: int) -> TaskPlan:
        edges = self._edges
        upstream = [name for name, readers in edges.items() if service.name in readers]
        written = {topic.name for name in upstream for topic in self.services[name].outputs.values()}
        senders = tuple(
            f"{name}.{task}"
            for name in upstream
            if (name, service.name) not in self._feedback
            for task in range(self.services[name].tasks)
        )
        return TaskPlan(
            definition=service,
            number=number,
            changelog=TopicPartition(f"{self.app}.{service.name}.changelog", number),
            control=self.control,
            dead_letters=dead_letter_topic(self.app, service),
            outside=frozenset(topic.name for topic in service.inputs) - written,
            senders=senders,
            has_readers=any((service.name, reader) not in self._feedback for reader in edges[service.name]),
        )

    # -- topics ------------------------------------------------------------------------------------------------------
    @property
    def topics(self) -> Mapping[str, TopicDefinition]:
        """Topics with data: declared, read, written, internal, dead letters."""
        found = dict(self.declared)
        for service in self.services.values():
            letters = dead_letter_topic(self.app, service)
            for topic in (*service.inputs, *service.outputs.values(), *((letters,) if letters else ())):
                known = found.setdefault(topic.name, topic)
                if known.codec.type is Any:  # then the type is the one that a handler's annotation names
                    found[topic.name] = replace(known, codec=topic.codec)
        return found

    @property
    def changelogs(self) -> list[TopicSpec]:
        return [
            TopicSpec(name=f"{self.app}.{service.name}.changelog", partitions=service.tasks, compact=True)
            for service in self.services.values()
        ]

    @property
    def specs(self) -> list[TopicSpec]:
        """Everything that must exist before a task opens."""
        control = TopicSpec(name=self.control.topic, partitions=1, compact=True)
        return [*(topic.spec for topic in self.topics.values()), *self.changelogs, control]


def _back_edges(edges: Mapping[str, list[str]]) -> Iterator[tuple[str, str]]:
    """The edges that close a cycle, seen from the services in the order of their declaration: they carry no time."""
    finished: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> Iterator[tuple[str, str]]:
        for reader in edges[name]:
            if reader in (*path, name):
                yield name, reader
            elif reader not in finished:
                yield from visit(reader, (*path, name))
        finished.add(name)

    for name in edges:
        if name not in finished:
            yield from visit(name, ())
