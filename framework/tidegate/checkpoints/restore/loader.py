"""Loads the state and the in-flight records of a savepoint into the changelogs and in-flight topics of a new run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from tidegate.checkpoints.restore.redistribute import redistribute
from tidegate.checkpoints.restore.rescale import SavepointApp, input_for, routing
from tidegate.checkpoints.storage.in_flight_format import InFlightRecord
from tidegate.engine.keyed_state.schema_migration import recorded_schemas, schema_change
from tidegate.engine.keyed_state.schema_plan import prefixes_of
from tidegate.engine.topology.plan import Plan
from tidegate.engine.topology.shuffle import ShuffleHandler, changelog_topic, in_flight_input, in_flight_topic
from tidegate.functions.definition import ServiceDefinition
from tidegate.functions.topics import TopicDefinition
from tidegate.keys import encode_key
from tidegate.logs.base import NewRecord, TopicPartition, TopicSpec, Writer
from tidegate.state.base import Store
from tidegate.state.layout import KEYED, TIMER, operator_key, prefix_range
from tidegate.time.clock import Clock

__all__ = ("LoadStats", "Loader")

_BATCH: Final = 20_000
"""Records per transaction."""
_BATCH_BYTES: Final = 8 << 20


class LoadStats:
    """Entries of state that were loaded, their bytes, and in-flight records."""

    def __init__(self) -> None:
        self.entries = self.bytes = self.in_flight = 0
        self.moved = 0
        """Bytes that went to a task of another number; a redistributed operator state counts as a whole."""

    def add(self, size: int, *, moved: bool) -> None:
        self.entries += 1
        self.bytes += size
        self.moved += size if moved else 0


class Loader:
    """Appends in batches. No task reads the records before the run begins."""

    def __init__(
        self, before: SavepointApp, plan: Plan, writer: Writer, clock: Clock, on_progress: Callable[[LoadStats], None]
    ) -> None:
        self._before, self._plan, self._writer, self._clock = before, plan, writer, clock
        self._on_progress = on_progress
        self._pending: dict[TopicPartition, list[NewRecord]] = {}
        self._count = self._size = 0
        self.stats = LoadStats()

    # -- state -------------------------------------------------------------------------------------------------------
    async def load_task(self, service: ServiceDefinition, number: int, store: Store) -> None:
        """Keyed state and timers of one task of the savepoint. Timer queues are derived from the timers, and are not in
        changelogs."""
        route, targets = routing(self._before, service).route, self._changelogs(service)
        dropped, now = self._dropped_prefixes(service, store), self._clock.now()
        for tag in (KEYED, TIMER):
            for key, value in store.scan(*prefix_range(tag)):
                if dropped and key.startswith(dropped):
                    continue
                target, size = number if route is None else route(key), len(key) + len(value)
                self._add(targets[target], (key, value, now, ()), size)
                self.stats.add(size, moved=target != number)
                if self._count >= _BATCH or self._size >= _BATCH_BYTES:
                    await self.flush()

    @staticmethod
    def _dropped_prefixes(service: ServiceDefinition, store: Store) -> tuple[bytes, ...]:
        """Key prefixes of the states that the code no longer declares."""
        dropped = {name: s.kind for name, s in recorded_schemas(store).items() if name not in service.states}
        return tuple(prefix for name, kind in dropped.items() for prefix in prefixes_of(name, kind))

    async def load_operator_state(self, service: ServiceDefinition, stores: Sequence[Store]) -> None:
        """Operator state, and the schemas, which are the same in all tasks."""
        targets, now = self._changelogs(service), self._clock.now()
        for name, state in service.states.items():
            if state.kind == "operator":
                key = operator_key(name, 0)
                values = [store.get(key) for store in stores]
                if len(targets) != len(stores):
                    values = redistribute(values, len(targets), state.redistribute.how)
                for target, raw in zip(targets, values, strict=True):
                    if raw is not None:
                        self._add(target, (key, raw, now, ()), len(key) + len(raw))
                        self.stats.add(len(key) + len(raw), moved=len(targets) != len(stores))
        for name, schema in recorded_schemas(stores[0]).items() if stores else ():
            if name in service.states:
                for target in targets:
                    self._add(target, (*schema_change(name, schema), now, ()), 0)
        await self.flush()

    def _changelogs(self, service: ServiceDefinition) -> list[TopicPartition]:
        name = changelog_topic(self._plan.app, self._plan.run, service.name)
        return [TopicPartition(name, number) for number in range(service.tasks)]

    # -- in-flight records -------------------------------------------------------------------------------------------
    def destination(self, service: str, record: InFlightRecord) -> tuple[str, TopicDefinition] | None:
        """The in-flight topic for a record, and the input that the topic belongs to. None: the code no longer reads
        the record's topic."""
        topic, _ = self._before.topic(service, record.topic)
        input_ = input_for(self._plan, service, topic)
        return (
            None if input_ is None else (in_flight_topic(self._plan.app, self._plan.run, service, input_.name), input_)
        )

    def specs(self, service: str, records: Iterator[InFlightRecord]) -> dict[str, TopicSpec]:
        """The in-flight topics that these records need, by name."""
        found = {}
        for record in records:
            destination = self.destination(service, record)
            if destination is not None:
                name, input_ = destination
                found[name] = in_flight_input(input_, name).spec
        return found

    async def load_in_flight(self, service: str, records: Iterator[InFlightRecord]) -> None:
        for record in records:
            destination = self.destination(service, record)
            if destination is None:
                continue
            name, input_ = destination
            for key, value, timestamp in self._shuffled(service, record, input_):
                target = TopicPartition(name, self._partition(record, input_, key))
                size = len(key or b"") + len(value or b"")
                self._add(target, (key, value, timestamp, record.headers), size)
            self.stats.in_flight += 1
            if self._count >= _BATCH or self._size >= _BATCH_BYTES:
                await self.flush()

    def _partition(self, record: InFlightRecord, input_: TopicDefinition, key: bytes | None) -> int:
        """On a public topic with an unchanged partition count, the record's own partition, whatever partitioner chose
        it: that keeps the order."""
        old_count = self._before.manifest.partitions.get(record.topic)
        if key is None or (not input_.internal and old_count == input_.partitions):
            return record.partition % input_.partitions
        return input_.partition_for(key)

    def _shuffled(
        self, service: str, record: InFlightRecord, input_: TopicDefinition
    ) -> Iterator[tuple[bytes | None, bytes | None, int]]:
        """Key, value and timestamp. If the service has read the record directly, and reads from a shuffle now, those
        that the shuffle would have given it; nothing, if the shuffle would have dropped it."""
        topic, was_shuffled = self._before.topic(service, record.topic)
        shuffle = self._shuffle(service, topic)
        if was_shuffled or shuffle is None or record.value is None or not input_.internal:
            yield record.key, record.value, record.timestamp
            return
        source, handler = next((spec.topic, spec.handler) for spec in shuffle.inputs if spec.topic.name == topic)
        assert isinstance(handler, ShuffleHandler)  # noqa: S101  it is a shuffle's
        value: Any = source.decode(record.value)
        extract = source.time.extractor(self._clock, outside=False)
        timestamp = record.timestamp if extract is None else extract(value, record.timestamp)
        key = record.key if handler.key is None else encode_key(handler.key(value))
        raw: bytes | None = record.value
        sent = True
        if handler.steps is not None:
            sent, value = handler.steps.apply(value, source.codec)
            raw = input_.encode(value) if sent else None
        if sent:
            yield key, raw, timestamp

    def _shuffle(self, service: str, topic: str) -> ServiceDefinition | None:
        shuffles = (known for known in self._plan.services.values() if known.part_of == service)
        return next((known for known in shuffles if topic in {read.name for read in known.topics}), None)

    # -- writing -----------------------------------------------------------------------------------------------------
    def _add(self, target: TopicPartition, record: NewRecord, size: int) -> None:
        self._pending.setdefault(target, []).append(record)
        self._count += 1
        self._size += size

    async def flush(self) -> None:
        if self._pending:
            pending, self._pending = self._pending, {}
            self._count = self._size = 0
            await self._writer.append(pending)
        self._on_progress(self.stats)
        await asyncio.sleep(0)
