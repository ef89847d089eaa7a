"""`tidegate replay`: replays one key's events through the handler, from a savepoint on.

1. Download the savepoint, and extract the key's state and timers.
2. Read the key's events since then from the log: the records in flight at the cut, then the topics from the savepoint's
   positions on.
3. Run the service alone, in memory, over a log with these events only. Nothing else is written.

Other keys are left out: operator state is that of the key's task at the cut, and event time advances by the savepoint's
watermark and this key's events. The clock follows the events' timestamps. External side effects of the handler, such as
HTTP calls, happen again.
"""

from __future__ import annotations

import pdb
import sys
import tempfile
from bdb import BdbQuit
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from dis import findlinestarts
from pathlib import Path
from types import CodeType
from typing import Any

from tidegate.checkpoints.restore.rescale import SavepointApp
from tidegate.checkpoints.storage.manifest import TaskSnapshot
from tidegate.checkpoints.storage.reader import CheckpointReader
from tidegate.checkpoints.storage.savepoint_state import SavepointState, open_savepoint_state
from tidegate.client.log_access import LogAccess
from tidegate.engine.formats.commit_marker import (
    ChannelMark,
    CommitMarker,
    InputMark,
    decode_marker,
    encode_marker,
    source_name,
)
from tidegate.engine.keyed_state.schema_migration import recorded_schemas, schema_change
from tidegate.engine.processing.context import STAMP_HEADER, own_headers
from tidegate.engine.topology.shuffle import BY_KEY
from tidegate.errors import ServiceFailedError, TidegateError, UnknownNameError
from tidegate.formatting import count
from tidegate.functions.definition import InputSpec, ServiceDefinition
from tidegate.functions.service import Service
from tidegate.host.app_definition import AppDefinition
from tidegate.keys import encode_key, key_group, partition_of, task_of_group
from tidegate.logs.base import Headers, LogRecord, NewRecord, TopicPartition
from tidegate.logs.observer import Observer
from tidegate.query.json_values import json_bytes, json_key, parse_key
from tidegate.state.base import Store
from tidegate.state.layout import KEYED, MARKER, OPERATOR, TIMER, parse_keyed, parse_timer, prefix_range
from tidegate.testing import AppHarness
from tidegate_app.output import note

__all__ = ("Replay",)


@dataclass(frozen=True)
class Event:
    """An input record of the key."""

    topic: str
    where: str
    timestamp: int
    key: bytes
    value: bytes | None
    headers: Headers


@dataclass(frozen=True)
class _Alone:
    """The service as the only one of its app, with one task."""

    definition: AppDefinition

    def define(self) -> AppDefinition:
        return self.definition


class Replay:
    def __init__(
        self, definition: AppDefinition, flags: Mapping[str, Any], service: Service, reader: CheckpointReader, key: str
    ) -> None:
        self._definition, self._flags, self._service, self._reader = definition, flags, service, reader
        self._key = parse_key(key, service.definition.key_type)
        self._before = SavepointApp(reader.manifest, definition.id)
        if not self._before.tasks(service.name):
            raise UnknownNameError("service in this savepoint", service.name, self._before.services)

    # -- gathering ---------------------------------------------------------------------------------------------------
    async def gather(self) -> tuple[list[NewRecord], list[Event]]:
        """Steps 1 and 2: the key's part of the changelog, without its marker, and its events."""
        with tempfile.TemporaryDirectory(prefix="tidegate-replay-") as scratch:
            async with open_savepoint_state(self._reader, Path(scratch) / "fetched", lambda *_: None) as contents:
                entries = list(self._entries(contents))
        events = [event async for event in self._events()]
        return entries, events

    def _entries(self, contents: SavepointState) -> Iterator[NewRecord]:
        for number, store in enumerate(contents.stores(self._service.name)):
            found = list(_of_key(store, self._key))
            if found or number == self._home:
                yield from ((key, value, 0, ()) for key, value in found)
        home = contents.stores(self._service.name)[self._home]
        yield from ((key, value, 0, ()) for key, value in home.scan(*prefix_range(OPERATOR)))
        yield from ((*schema_change(name, schema), 0, ()) for name, schema in recorded_schemas(home).items())

    @property
    def _home(self) -> int:
        """The number of the key's task at the cut."""
        tasks = self._before.tasks(self._service.name)
        if self._before.shuffled(self._service.name):
            return task_of_group(key_group(self._key), len(tasks))
        return partition_of(self._key, len(tasks))

    async def _events(self) -> AsyncIterator[Event]:
        access = LogAccess(self._definition, self._flags)
        async with access.observed() as observer:
            given = None if observer is None else await self._given(access, observer)
            shuffled = self._before.shuffled(self._service.name)
            for task in self._before.tasks(self._service.name) if shuffled else ():
                for flying in self._reader.in_flight(task):
                    topic, placed = self._before.topic(self._service.name, flying.topic)
                    if placed and flying.key == self._key:
                        yield Event(topic, "in flight", flying.timestamp, self._key, flying.value, flying.headers)
            if given is None or observer is None:
                return
            found: list[Event] = []
            for spec in given.inputs:
                found += [event async for event in self._read(observer, spec)]
            for event in sorted(
                found, key=lambda event: event.timestamp
            ):  # the sort is stable: events of one topic keep their order
                yield event

    async def _given(self, access: LogAccess, observer: Observer) -> ServiceDefinition | None:
        plan, _ = await access.load_plan(observer)
        return next((service for service in plan.given if service.name == self._service.name), None)

    async def _read(self, observer: Observer, spec: InputSpec) -> AsyncIterator[Event]:
        """The key's records of one topic since the cut."""
        topic = spec.topic
        if topic.name not in await observer.topics():
            return
        sources = [TopicPartition(topic.name, number) for number in range(topic.partitions)]
        starts, ends = await observer.start_offsets(sources), await observer.end_offsets(sources)
        reader = observer.reader()
        try:
            for source in sources:
                mark = self._mark(source).from_start(starts[source])
                if mark.resume_at >= ends[source]:
                    continue
                reader.assign({source: mark.resume_at})
                while reader.position(source) < ends[source]:
                    for batch in await reader.read(timeout=5.0):
                        for record in batch.records:
                            fresh = record.offset >= mark.position or record.offset in mark.unfinished
                            if fresh and record.offset < ends[source] and self._wanted(spec, record):
                                where = f"{source}@{record.offset}"
                                headers = tuple(own_headers(record))
                                for value in _through_its_shuffle(spec, record.value):
                                    yield Event(topic.name, where, record.timestamp, self._key, value, headers)
                reader.unassign([source])
        finally:
            await reader.close()

    def _mark(self, source: TopicPartition) -> InputMark:
        shuffle = f"{self._service.name}.{source.topic}.{BY_KEY}"
        tasks: list[TaskSnapshot] = [*self._before.tasks(self._service.name), *self._before.tasks(shuffle)]
        marks = (task.marker.inputs.get(source_name(source)) for task in tasks)
        return next((mark for mark in marks if mark is not None), InputMark(position=0))

    def _wanted(self, spec: InputSpec, record: LogRecord) -> bool:
        manifest = self._reader.manifest
        own, sent = f"{manifest.app}|".encode(), f"{manifest.app}|{manifest.run}|".encode()
        stamps = [value for name, value in record.headers if name == STAMP_HEADER]
        if any(stamp.startswith(own) and not stamp.startswith(sent) for stamp in stamps):
            return False  # a duplicate from another run
        if record.value is None or spec.key is None:
            return record.key == self._key
        try:
            return encode_key(spec.key(spec.topic.decode(record.value))) == self._key
        except Exception:
            return record.key == self._key  # a record that cannot be decoded is shown, and fails again

    # -- running -----------------------------------------------------------------------------------------------------
    def run(self, entries: list[NewRecord], events: list[Event], *, debug: bool) -> int:
        """Step 3. Returns the number of handled events."""
        note(f"{self._service.name} {self._shown_key}: {count(len(events), 'event')} since {self._reader.manifest.id}")
        first = events[0].timestamp if events else self._reader.manifest.completed_ms
        done = 0
        with AppHarness(
            self._alone(), services=[self._service.name], now=max(0, first), partitions=1, patience=3600
        ) as harness:
            self._load(harness, entries)
            with _debugging(self._service, on=debug):
                try:
                    for done, event in enumerate(events, 1):
                        self._handle(harness, done, event)
                except ServiceFailedError as error:
                    if isinstance(error.cause, BdbQuit):
                        note("Stopped.")
                        return done
                    raise
            print(f"     end  {self._state(harness)}")  # noqa: T201
        return done

    def _alone(self) -> _Alone:
        definition = self._definition
        mine = self._service.definition.with_input_topics(lambda topic: replace(topic, partitions=1))
        mine = replace(
            mine,
            inputs=tuple(map(_behind_its_shuffle, mine.inputs)),
            outputs={name: replace(topic, partitions=1) for name, topic in mine.outputs.items()},
            execution=replace(mine.execution, parallelism=None),
            actor=replace(mine.actor, partitions=1),
        )
        others = tuple(service for service in definition.services if service.name != mine.name)
        topics = tuple(replace(topic, partitions=1) for topic in definition.topics)
        return _Alone(replace(definition, services=(mine, *others), topics=topics))

    def _load(self, harness: AppHarness, entries: list[NewRecord]) -> None:
        """Load the key's state into the service."""
        changelog = TopicPartition(f"{self._definition.id}.{self._service.name}.changelog", 0)
        (marker,) = [
            decode_marker(record.value) for record in harness.records(changelog.topic)[-1:] if record.key == MARKER
        ]
        snapshot = self._before.tasks(self._service.name)[self._home].marker
        channels = {name: ChannelMark(watermark=snapshot.watermark) for name in marker.channels}
        began = CommitMarker(
            lineage=marker.lineage, run=marker.run, inputs={}, watermark=snapshot.watermark, channels=channels
        )

        async def load() -> None:
            writer = await harness.log.writer()
            await writer.append({changelog: [*entries, (MARKER, encode_marker(began), 0, ())]})
            await writer.close()

        harness.run(load())
        harness.crash()

    def _handle(self, harness: AppHarness, number: int, event: Event) -> None:
        behind = event.timestamp - harness.clock.now()
        before = self._state(harness)
        if behind > 0:
            harness.advance(milliseconds=behind)
            if (after := self._state(harness)) != before:
                print(f"          timers fire: {after}")  # noqa: T201
                before = after
        moment = datetime.fromtimestamp(event.timestamp / 1000, UTC).isoformat(timespec="milliseconds")
        print(f"{number:>8}  {event.topic} {event.where} {moment} {_json(json_bytes(event.value))}")  # noqa: T201
        print(f"  before  {before}")  # noqa: T201
        seen = {name: len(harness.records(name)) for name in self._outputs}
        harness.send_raw(
            event.topic, key=event.key, value=event.value, timestamp=event.timestamp, headers=event.headers, partition=0
        )
        for name, known in seen.items():
            for record in harness.records(name)[known:]:
                print(f"   emits  {name} {_plain(record.key)}: {_plain(record.value)}")  # noqa: T201
        print(f"   after  {self._state(harness)}")  # noqa: T201

    @property
    def _outputs(self) -> list[str]:
        return [topic.name for topic in self._service.definition.outputs.values()]

    @property
    def _shown_key(self) -> str:
        return _json(json_key(self._key, self._service.definition.key_type))

    def _state(self, harness: AppHarness) -> str:
        """All states of the key, and its timers."""
        definition = self._service.definition
        shown = []
        for name, declaration in definition.states.items():
            value = harness.state(self._service.name, name, None if declaration.kind == "operator" else self._typed)
            if value not in (None, [], {}):
                shown.append(f"{name}={_plain(value)}")
        shown += [f"timer {timer.name!r} at {timer.at}" for timer in harness.timers(self._service.name, self._typed)]
        return ", ".join(shown) or "(nothing)"

    @property
    def _typed(self) -> bytes:
        return self._key  # bytes encode to themselves


def _through_its_shuffle(spec: InputSpec, raw: bytes | None) -> Iterator[bytes | None]:
    """What the shuffle before a service sends for a value, if it sends it. It may combine values: that makes no
    difference to a service which takes combined ones."""
    steps = spec.shuffle
    if steps is None or raw is None:
        yield raw
        return
    try:
        sent, value = steps.apply(spec.topic.decode(raw), spec.topic.codec)
        passed = steps.codec_of(spec.topic.codec).encode(value) if sent else b""
    except Exception:
        sent, passed = True, raw  # it is shown, and fails as it did
    if sent:
        yield passed


def _behind_its_shuffle(spec: InputSpec) -> InputSpec:
    """The input as its service reads it."""
    steps, topic = spec.shuffle, spec.topic
    codec = topic.codec if steps is None else steps.codec_of(topic.codec)
    return replace(spec, topic=replace(topic, codec=codec), key=None, shuffle=None)


def _of_key(store: Store, key: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The entries of a key in all states, and its timers."""
    for entry, value in store.scan(*prefix_range(KEYED)):
        if parse_keyed(entry).key == key:
            yield entry, value
    for entry, value in store.scan(*prefix_range(TIMER)):
        if parse_timer(entry).key == key:
            yield entry, value


def _json(value: Any) -> str:
    import orjson

    return orjson.dumps(value, default=repr).decode()


def _plain(value: Any) -> str:
    import msgspec

    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError):
        return repr(value)


# ------------------------------------------------------------------------------------------------------------ --pdb


@contextmanager
def _debugging(service: Service, *, on: bool) -> Iterator[None]:
    """Break at the first line of the handler at each call."""
    if not on:
        yield
        return
    debugger = pdb.Pdb(nosigint=True)
    debugger.reset()
    for code in _codes(service):
        debugger.set_break(code.co_filename, _first_line(code))
    debugger.botframe = sys._getframe()  # noqa: SLF001  the frame at which "continue" stops tracing
    debugger.set_continue()
    sys.settrace(debugger.trace_dispatch)
    try:
        yield
    finally:
        sys.settrace(None)


def _codes(service: Service) -> list[CodeType]:
    original: Any = service.original
    functions = (
        [getattr(original, name) for name in ("process", "on_timer")] if isinstance(original, type) else [original]
    )
    found = [function.__code__ for function in functions if hasattr(function, "__code__")]
    if not found:
        raise TidegateError(f"the handler of {service.name!r} has no Python source to debug")
    return found


def _first_line(code: CodeType) -> int:
    """The first line of the function's body."""
    lines = sorted({line for _, line in findlinestarts(code) if line > code.co_firstlineno})
    return lines[0] if lines else code.co_firstlineno
