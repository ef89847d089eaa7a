"""Loads what a savepoint holds into the changelogs and in-flight topics of a run that is about to begin."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from tidegate.checkpoints.restore.redistribute import redistribute
from tidegate.checkpoints.restore.rescale import Before, carried_input, router
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

__all__ = ("Loaded", "Loader")

_PORTION: Final = 20_000
"""Records per transaction."""
_PORTION_BYTES: Final = 8 << 20


class Loaded:
    """What was loaded so far: entries of state, their bytes, and records that were in flight."""

    def __init__(self) -> None:
        self.entries = self.bytes = self.in_flight = 0
        self.moved = 0
        """Of the bytes, those that went to a task of another number; all of an operator state that was dealt out."""

    def add(self, size: int, *, moved: bool) -> None:
        self.entries += 1
        self.bytes += size
        self.moved += size if moved else 0


class Loader:
    """Appends in portions; nobody reads what it writes before the run begins."""

    def __init__(
        self, before: Before, plan: Plan, writer: Writer, clock: Clock, tell: Callable[[Loaded], None]
    ) -> None:
        self._before, self._plan, self._writer, self._clock, self._tell = before, plan, writer, clock, tell
        self._waiting: dict[TopicPartition, list[NewRecord]] = {}
        self._count = self._size = 0
        self.loaded = Loaded()

    # -- state -------------------------------------------------------------------------------------------------------
    async def load_task(self, service: ServiceDefinition, number: int, store: Store) -> None:
        """Keyed state and timers of a task as it was. Timer queues follow from the timers, and are in no changelog."""
        route, targets = router(self._before, service).route, self._changelogs(service)
        gone, now = self._gone(service, store), self._clock.now()
        for tag in (KEYED, TIMER):
            for key, value in store.scan(*prefix_range(tag)):
                if gone and key.startswith(gone):
                    continue
                to, size = number if route is None else route(key), len(key) + len(value)
                self._put(targets[to], (key, value, now, ()), size)
                self.loaded.add(size, moved=to != number)
                if self._count >= _PORTION or self._size >= _PORTION_BYTES:
                    await self.flush()

    @staticmethod
    def _gone(service: ServiceDefinition, store: Store) -> tuple[bytes, ...]:
        """What entries begin with of states that the code has no more."""
        dropped = {name: s.kind for name, s in recorded_schemas(store).items() if name not in service.states}
        return tuple(prefix for name, kind in dropped.items() for prefix in prefixes_of(name, kind))

    async def load_operators(self, service: ServiceDefinition, stores: Sequence[Store]) -> None:
        """What belongs to tasks as such, and the schemas, which are the same everywhere."""
        targets, now = self._changelogs(service), self._clock.now()
        for name, state in service.states.items():
            if state.kind == "operator":
                key = operator_key(name, 0)
                dealt = [store.get(key) for store in stores]
                if len(targets) != len(stores):
                    dealt = redistribute(dealt, len(targets), state.redistribute.how)
                for target, raw in zip(targets, dealt, strict=True):
                    if raw is not None:
                        self._put(target, (key, raw, now, ()), len(key) + len(raw))
                        self.loaded.add(len(key) + len(raw), moved=len(targets) != len(stores))
        for name, schema in recorded_schemas(stores[0]).items() if stores else ():
            if name in service.states:
                for target in targets:
                    self._put(target, (*schema_change(name, schema), now, ()), 0)
        await self.flush()

    def _changelogs(self, service: ServiceDefinition) -> list[TopicPartition]:
        name = changelog_topic(self._plan.app, self._plan.run, service.name)
        return [TopicPartition(name, number) for number in range(service.tasks)]

    # -- what was in flight ------------------------------------------------------------------------------------------
    def carried(self, service: str, record: InFlightRecord) -> tuple[str, TopicDefinition] | None:
        """The topic that hands a record to a service, and the input that it stands beside. None: nobody wants it."""
        topic, _ = self._before.topic(service, record.topic)
        beside = carried_input(self._plan, service, topic)
        return (
            None if beside is None else (in_flight_topic(self._plan.app, self._plan.run, service, beside.name), beside)
        )

    def specs(self, service: str, records: Iterator[InFlightRecord]) -> dict[str, TopicSpec]:
        """The topics that these records need."""
        found = {}
        for record in records:
            wanted = self.carried(service, record)
            if wanted is not None:
                name, beside = wanted
                found[name] = in_flight_input(beside, name).spec
        return found

    async def load_in_flight(self, service: str, records: Iterator[InFlightRecord]) -> None:
        for record in records:
            wanted = self.carried(service, record)
            if wanted is None:
                continue
            name, beside = wanted
            key, timestamp = self._placed(service, record, beside)
            target = TopicPartition(name, self._partition(record, beside, key))
            size = len(key or b"") + len(record.value or b"")
            self._put(target, (key, record.value, timestamp, record.headers), size)
            self.loaded.in_flight += 1
            if self._count >= _PORTION or self._size >= _PORTION_BYTES:
                await self.flush()

    def _partition(self, record: InFlightRecord, beside: TopicDefinition, key: bytes | None) -> int:
        """On a topic that has the partitions that it had, where it was, whoever chose that: so order is kept."""
        was = self._before.manifest.partitions.get(record.topic)
        if key is None or (not beside.internal and was == beside.partitions):
            return record.partition % beside.partitions
        return beside.partition_for(key)

    def _placed(self, service: str, record: InFlightRecord, beside: TopicDefinition) -> tuple[bytes | None, int]:
        """A record that a service has read directly, and that now comes from a shuffle: with the time and the key that
        this one would have found."""
        topic, placed = self._before.topic(service, record.topic)
        shuffle = self._shuffle(service, topic)
        if placed or shuffle is None or record.value is None or not beside.internal:
            return record.key, record.timestamp
        source, handler = next((spec.topic, spec.handler) for spec in shuffle.inputs if spec.topic.name == topic)
        value: Any = source.codec.decode(record.value)
        extract = source.time.extractor(self._clock, outside=False)
        timestamp = record.timestamp if extract is None else extract(value)
        if not isinstance(handler, ShuffleHandler) or handler.key is None:
            return record.key, timestamp
        return encode_key(handler.key(value)), timestamp

    def _shuffle(self, service: str, topic: str) -> ServiceDefinition | None:
        shuffles = (known for known in self._plan.services.values() if known.part_of == service)
        return next((known for known in shuffles if topic in {read.name for read in known.topics}), None)

    # -- writing -----------------------------------------------------------------------------------------------------
    def _put(self, target: TopicPartition, record: NewRecord, size: int) -> None:
        self._waiting.setdefault(target, []).append(record)
        self._count += 1
        self._size += size

    async def flush(self) -> None:
        if self._waiting:
            waiting, self._waiting = self._waiting, {}
            self._count = self._size = 0
            await self._writer.append(waiting)
        self._tell(self.loaded)
        await asyncio.sleep(0)
