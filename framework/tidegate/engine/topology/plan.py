"""Plans the tasks of an app from its declared services: shuffles, internal topics, edges between services."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

from tidegate.codecs import codec_for
from tidegate.engine.formats.actor_message import REMEMBERED, remembered_replies
from tidegate.engine.topology.run import FIRST, Run
from tidegate.engine.topology.shuffle import ShufflePlan, changelog_topic
from tidegate.errors import DefinitionError
from tidegate.functions.declaration.handler_spec import MESSAGES
from tidegate.functions.definition import InputSpec, ServiceDefinition
from tidegate.functions.policies import DeadLetter, Retry
from tidegate.functions.topics import TopicDefinition
from tidegate.logs.base import TopicPartition, TopicSpec
from tidegate.settings import Settings
from tidegate.time.sources import BrokerTime

__all__ = ("Plan", "TaskPlan", "dead_letter_topic", "mailbox_topic", "reply_topic", "with_mailbox")

_REPLIES_MS: Final = 3_600_000
"""Retention of replies: longer than any timeout of an ask, so that replies can be inspected."""

_OF_A_RUN: Final = re.compile(r"run-\d+\.")
"""What follows the app's name in the topics of a restored run."""


@dataclass(frozen=True, kw_only=True)
class TaskPlan:
    """One task, with its topics and its neighbours in the graph."""

    definition: ServiceDefinition
    number: int
    run: Run
    transactional_id: str
    """Of its commits: a writer with this id fences the task's former owner."""
    changelog: TopicPartition
    control: TopicPartition
    dead_letters: TopicDefinition | None
    outside: frozenset[str]
    """Input topics that no service of this app writes."""
    senders: tuple[str, ...]
    """The upstream tasks whose watermarks count here."""
    has_readers: bool
    """Whether downstream services depend on this task's watermark."""
    mailboxes: Mapping[str, ServiceDefinition]
    """The services of the app that take messages."""
    replies: TopicDefinition | None
    """The topic of replies to asks; None: no service takes messages."""
    has_outputs: bool
    """Whether services read what it sends, including messages, which carry no watermark."""

    @property
    def id(self) -> str:
        return f"{self.definition.name}.{self.number}"

    @property
    def inputs(self) -> Iterator[tuple[InputSpec, TopicPartition]]:
        return ((spec, TopicPartition(spec.topic.name, self.number)) for spec in self.definition.inputs)

    @property
    def sources(self) -> Iterator[tuple[TopicDefinition, TopicPartition]]:
        return ((spec.topic, source) for spec, source in self.inputs)


def dead_letter_topic(app: str, service: ServiceDefinition) -> TopicDefinition | None:
    policy = service.errors.then if isinstance(service.errors, Retry) else service.errors
    if not isinstance(policy, DeadLetter):
        return None
    # One partition: dead letters are few, and a service shares the topic with its shuffles.
    return TopicDefinition(
        name=f"{app}.{service.part_of or service.name}.dead-letters", codec=codec_for(bytes), partitions=1
    )


def mailbox_topic(app: str, service: str) -> str:
    return f"{app}.{service}.mailbox"


def with_mailbox(app: str, service: ServiceDefinition) -> ServiceDefinition:
    """Adds the mailbox to the inputs, and the idempotency keys to the states, of a service that takes messages."""
    if not service.inputs and not service.messages:
        raise DefinitionError(f"service {service.name!r} handles nothing: write @{service.name}.on(MessageType)")
    if not service.messages:
        return service
    mailbox = TopicDefinition(
        name=mailbox_topic(app, service.name),
        codec=codec_for(Any),
        key_type=service.key_type,
        partitions=service.tasks if service.inputs else service.actor.partitions,
        mailbox=True,
    )
    return replace(
        service,
        inputs=(*service.inputs, InputSpec(topic=mailbox, handler=MESSAGES)),
        states={**service.states, REMEMBERED: remembered_replies(service.actor.remember_ms)},
    )


def reply_topic(app: str) -> TopicDefinition:
    return TopicDefinition(
        name=f"{app}.replies",
        codec=codec_for(Any),
        partitions=0,
        time=BrokerTime(),
        retention_ms=_REPLIES_MS,
        internal=True,
    )


class Plan:
    """The validated services of an app, with their shuffles and tasks."""

    def __init__(
        self,
        app: str,
        services: Iterable[ServiceDefinition],
        topics: Iterable[TopicDefinition],
        settings: Settings,
        existing: Mapping[str, TopicSpec],
        run: Run = FIRST,
        *,
        parallelism: Mapping[str, int | None] | None = None,
        others: Iterable[ServiceDefinition] = (),
    ) -> None:
        """`existing`: the topics of the log; a topic without a declared partition count takes that of the log.
        `parallelism`: by service, for a run that is being restored; see `ShufflePlan`. `others`: services that receive
        messages from this app, but do not run in it."""
        self.app, self.run, self._settings, self._existing = app, run, settings, existing
        services = tuple(services)
        self._sized_by_settings = [service.name for service in services if _is_sized_by_settings(service)]
        self.given = [self._with_topics(declared) for declared in services]
        """The services before any shuffle, with their topics as they are on the log."""
        self._shuffles = ShufflePlan(app, run, existing, parallelism)
        self.services: Mapping[str, ServiceDefinition] = {
            service.name: service for declared in self.given for service in self._shuffles.apply(declared)
        }
        receivers = {service.name: service for service in (*map(self._with_topics, others), *self.given)}
        self.mailboxes = {name: service for name, service in receivers.items() if service.mailbox is not None}
        """The services that take messages, before any shuffle."""
        self.replies = self._complete(reply_topic(app)) if self.mailboxes else None
        self.declared = {topic.name: self._complete(topic) for topic in topics}
        self.control = TopicPartition(f"{app}.control", 0)
        for service in self.services.values():
            self._check(service)
        self._edges = self._find_edges()
        self._feedback = set(_back_edges(self._edges))

    def _complete(self, topic: TopicDefinition) -> TopicDefinition:
        """Fills in partitions and retention that the declaration leaves to the settings or to the log."""
        known = self._existing.get(topic.name)
        partitions = topic.partitions or (known.partitions if known is not None else self._settings.partitions)
        retention = topic.retention_ms
        if retention is None and not topic.compact and self._settings.retention_hours > 0:
            retention = round(self._settings.retention_hours * 3_600_000)
        return replace(topic, partitions=partitions, retention_ms=retention or None)  # 0: without limit

    def _with_topics(self, service: ServiceDefinition) -> ServiceDefinition:
        complete = with_mailbox(self.app, service.with_input_topics(self._complete)).with_input_topics(self._complete)
        return replace(complete, outputs={name: self._complete(topic) for name, topic in service.outputs.items()})

    def check_placement(self) -> None:
        """PlacementError: the code declares another partitioning of state than this run has."""
        for service in self.given:
            self._shuffles.check(service)

    def _check(self, service: ServiceDefinition) -> None:
        for spec in service.inputs:
            if spec.broadcast:
                raise DefinitionError(f"service {service.name!r}: {spec.topic.name!r} cannot be broadcast to its tasks")
        counts = {topic.name: topic.partitions for topic in service.topics}
        if len(set(counts.values())) > 1:
            described = ", ".join(f"{name} has {count}" for name, count in counts.items())
            raise DefinitionError(
                f"service {service.name!r} reads topics that are not co-partitioned: {described}. "
                f"Give them the same number of partitions, or give the service key_by=... to repartition the records."
            )

    def _find_edges(self) -> dict[str, list[str]]:
        """By service, the services that read its outputs. Messages carry no watermark, so they are not edges."""
        return {
            sender.name: [
                reader.name
                for reader in self.services.values()
                if {topic.name for topic in reader.topics if not topic.mailbox}
                & {topic.name for topic in sender.outputs.values()}
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
            run=self.run,
            transactional_id=self.run.name(self.app, f"{service.name}.{number}"),
            changelog=TopicPartition(changelog_topic(self.app, self.run, service.name), number),
            control=self.control,
            dead_letters=dead_letter_topic(self.app, service),
            outside=frozenset(topic.name for topic in service.topics if not topic.carried and not topic.mailbox)
            - written,
            senders=senders,
            has_readers=any((service.name, reader) not in self._feedback for reader in edges[service.name]),
            mailboxes=self.mailboxes,
            replies=self.replies,
            has_outputs=bool(edges[service.name] or self.mailboxes),
        )

    # -- topics ------------------------------------------------------------------------------------------------------
    @cached_property
    def topics(self) -> Mapping[str, TopicDefinition]:
        """All data topics: declared, inputs, outputs, internal, dead letters, mailboxes, replies."""
        found = dict(self.declared)
        messaging = (*(service.mailbox for service in self.mailboxes.values()), self.replies)
        found |= {topic.name: topic for topic in messaging if topic is not None}
        for service in self.services.values():
            letters = dead_letter_topic(self.app, service)
            for topic in (*service.topics, *service.outputs.values(), *((letters,) if letters else ())):
                known = found.setdefault(topic.name, topic)
                if known.codec.type is Any:  # a handler's annotation may have a more specific type
                    found[topic.name] = replace(known, codec=topic.codec)
        return found

    @property
    def changelogs(self) -> list[TopicSpec]:
        return [
            TopicSpec(
                name=changelog_topic(self.app, self.run, service.name),
                partitions=service.tasks,
                compact=True,
                internal=True,
            )
            for service in self.services.values()
        ]

    @property
    def forgotten(self) -> list[str]:
        """Services that have a changelog in this run, and are no longer in the code. Topics that start with this app's
        name may belong to an app with a longer name, which is recognized by its control topic."""
        stem, end = self.run.name(self.app, ""), ".changelog"
        apps = [name.removesuffix("control") for name in self._existing if name.endswith(".control")]
        others = tuple(app for app in apps if app.startswith(f"{self.app}.") and app != f"{self.app}.")
        topics = (name for name in self._existing if name.startswith(stem) and name.endswith(end))
        own = {name.removeprefix(stem).removesuffix(end) for name in topics if not name.startswith(others)}
        return sorted(name for name in own - self.services.keys() if not _OF_A_RUN.match(name))

    @property
    def fixed(self) -> Mapping[str, int]:
        """By service, the number of tasks where it differs from the setting `partitions`, because the topics exist
        already. Services with a number in the code are left out: the setting does not apply to them."""
        tasks = {name: self.services[name].tasks for name in self._sized_by_settings}
        return {name: count for name, count in tasks.items() if count != self._settings.partitions}

    @property
    def specs(self) -> list[TopicSpec]:
        """All topics that must exist before a task opens."""
        control = TopicSpec(name=self.control.topic, partitions=1, compact=True, internal=True)
        return [*map(self._spec, self.topics.values()), *self.changelogs, control]

    @property
    def retentions(self) -> Mapping[str, int]:
        """By topic with a retention by the records' timestamps, that retention in ms."""
        specs = (self._existing.get(spec.name, spec) for spec in self.specs)
        return {spec.name: spec.retention_ms for spec in specs if spec.retention_ms and not spec.append_time}

    def _spec(self, topic: TopicDefinition) -> TopicSpec:
        """Internal topics have no retention: they are trimmed once all tasks have read them, so unread records are
        never deleted. No task reads replies, so they have a retention."""
        trimmed = topic.internal and topic is not self.replies
        return (replace(topic, retention_ms=None) if trimmed else topic).spec


def _is_sized_by_settings(service: ServiceDefinition) -> bool:
    """Whether the number of tasks comes from the settings."""
    given = service.execution.parallelism or service.actor.partitions
    return not (given or any(topic.partitions for topic in service.topics))


def _back_edges(edges: Mapping[str, list[str]]) -> Iterator[tuple[str, str]]:
    """The edges that close a cycle, in a depth-first search in the order of declaration: they carry no watermark."""
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
