"""Shuffles: services that stand before another one and place its input by key, through an internal topic.

A service has one for each of its inputs if it wants any of them under another key (`key_by`) or changed by steps
(`ShuffleSteps`), if it asks for a number of tasks of its own (`parallelism`), or if it was restored to another number
than its input has partitions. A shuffle is an ordinary service with a handler of the engine's (`ShuffleHandler`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from tidegate.engine.topology.run import Run
from tidegate.errors import PlacementError
from tidegate.functions.declaration.handler_spec import InputHandler
from tidegate.functions.definition import ExecutionSpec, InputSpec, ServiceDefinition
from tidegate.functions.shuffle_steps import ShuffleSteps
from tidegate.functions.topics import TopicDefinition
from tidegate.logs.base import TopicSpec
from tidegate.time.sources import EventTime

__all__ = ("ShuffleHandler", "ShufflePlan", "changelog_topic", "in_flight_topic")

logger = logging.getLogger(__name__)

BY_KEY: Final = "by-key"
IN_FLIGHT: Final = "in-flight"


def changelog_topic(app: str, run: Run, service: str) -> str:
    return run.name(app, f"{service}.changelog")


def by_key_topic(app: str, run: Run, service: str, topic: str) -> str:
    return run.name(app, f"{service}.{topic}.{BY_KEY}")


def in_flight_topic(app: str, run: Run, service: str, topic: str) -> str:
    """Contains the in-flight records from `topic` to a service at the cut of the savepoint that the run started
    from."""
    return run.name(app, f"{service}.{topic}.{IN_FLIGHT}")


@dataclass(frozen=True, kw_only=True)
class ShuffleHandler(InputHandler):
    """What a shuffle does with the records of an input."""

    key: Callable[[Any], Any] | None = None
    """From a value to the key under which the service behind wants it; None: as the records are keyed."""
    steps: ShuffleSteps | None = None
    """None: the records are sent on as they are."""
    reader: InputHandler
    """Of the service behind it."""

    @property
    def takes_tombstones(self) -> bool:
        return self.reader.takes_tombstones

    @property
    def reads_values(self) -> bool:
        """Whether it needs more than a record's bytes."""
        return self.key is not None or self.steps is not None


class ShufflePlan:
    """Decides which services of a run have a shuffle, and with how many partitions."""

    def __init__(
        self, app: str, run: Run, existing: Mapping[str, TopicSpec], chosen: Mapping[str, int | None] | None
    ) -> None:
        """`chosen`: the parallelism by service, for a run that is being restored; None: the service reads its input
        directly. A run that has started keeps its parallelism, which its topics show."""
        self._app, self._run, self._existing, self._chosen = app, run, existing, chosen

    def parallelism(self, service: ServiceDefinition) -> int | None:
        """The partitions of the service's shuffle; None: it has no shuffle."""
        wanted = service.execution.parallelism
        if wanted is None and service.shuffled:
            wanted = max(topic.partitions for topic in service.topics)
        if self._chosen is not None:
            return self._chosen.get(service.name, wanted)
        return self._current(service) or wanted

    def _current(self, service: ServiceDefinition) -> int | None:
        changelog = self._existing.get(changelog_topic(self._app, self._run, service.name))
        shuffled = any(self._by_key(service, topic) in self._existing for topic in service.topics)
        return changelog.partitions if changelog is not None and shuffled else None

    def _by_key(self, service: ServiceDefinition, topic: TopicDefinition) -> str:
        return by_key_topic(self._app, self._run, service.name, topic.name)

    def check(self, service: ServiceDefinition) -> None:
        """PlacementError: the state is partitioned like the input, and cannot be repartitioned within a run. Warns if
        the code declares another parallelism than the run has."""
        current, parallelism = self._current(service), service.execution.parallelism
        changelog = self._existing.get(changelog_topic(self._app, self._run, service.name))
        if changelog is not None and current is None and (parallelism or service.shuffled):
            raise PlacementError(self._app, service.name, changelog.partitions)
        if current is not None and parallelism not in (None, current):
            logger.warning(
                "service %s has %d tasks in this run, but the code declares parallelism=%d. To change it, stop the app "
                "with a savepoint and restore it with --partitions %d.",
                service.name, current, parallelism, parallelism,
            )  # fmt: skip

    def apply(self, service: ServiceDefinition) -> list[ServiceDefinition]:
        """The service, behind a shuffle for each of its inputs if it has one."""
        parallelism = self.parallelism(service)
        if parallelism is None:
            return [self.with_in_flight(service)]
        shuffles, inputs = [], []
        for spec in service.inputs:
            internal = self._internal(service, spec, parallelism)
            inputs.append(replace(spec, topic=internal, key=None, shuffle=None))
            shuffles.append(_shuffle(service, spec, internal))
        placed = self.with_in_flight(replace(service, inputs=tuple(inputs)))
        return [*map(self.with_in_flight, shuffles), placed]

    def _internal(self, service: ServiceDefinition, spec: InputSpec, partitions: int) -> TopicDefinition:
        topic = spec.topic
        return replace(
            topic,
            name=self._by_key(service, topic),
            codec=topic.codec if spec.shuffle is None else spec.shuffle.codec_of(topic.codec),
            key=None,
            key_type=service.key_type,
            partitions=partitions,
            time=EventTime(),  # the shuffle has found the time; it is the record's timestamp
            retention_bytes=None,
            compact=False,
            internal=True,
        )

    def with_in_flight(self, service: ServiceDefinition) -> ServiceDefinition:
        """Adds the inputs for in-flight records of the restored savepoint, if there are any."""
        named = ((in_flight_topic(self._app, self._run, service.name, it.topic.name), it) for it in service.inputs)
        carried = tuple(
            replace(spec, topic=in_flight_input(spec.topic, name)) for name, spec in named if name in self._existing
        )
        return replace(service, inputs=(*service.inputs, *carried)) if carried else service


def in_flight_input(topic: TopicDefinition, name: str) -> TopicDefinition:
    """The in-flight input for an input topic: the same partitioning and time source."""
    return replace(topic, name=name, retention_ms=None, retention_bytes=None, compact=False, carried=True)


def _shuffle(service: ServiceDefinition, spec: InputSpec, internal: TopicDefinition) -> ServiceDefinition:
    return ServiceDefinition(
        name=f"{service.name}.{spec.topic.name}.{BY_KEY}",
        inputs=(
            InputSpec(topic=spec.topic, handler=ShuffleHandler(key=spec.key, steps=spec.shuffle, reader=spec.handler)),
        ),
        outputs={internal.name: internal},
        errors=service.errors,
        execution=ExecutionSpec(guarantee=service.execution.guarantee),
        part_of=service.name,
    )
