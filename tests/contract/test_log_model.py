"""Random histories of a log against a model of it that is too simple to be wrong."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.contract.logs import LocalLog, ManualClock, read_all
from tidegate.logs.base import NewRecord, TopicPartition, TopicSpec
from tidegate.logs.embedded import EmbeddedLog, EmbeddedOptions
from tidegate.testing.memory_log import MemoryLog

T = TypeVar("T")

RETENTION_MS = 1000
TOMBSTONE_MS = 500
SPECS = (
    TopicSpec(name="plain", partitions=2),
    TopicSpec(name="brief", partitions=1, retention_ms=RETENTION_MS),
    TopicSpec(name="small", partitions=1, retention_bytes=600),
    TopicSpec(name="compact", partitions=2, compact=True, tombstone_ms=TOMBSTONE_MS),
)
SOURCES = [TopicPartition(spec.name, number) for spec in SPECS for number in range(spec.partitions)]

KEYS = st.sampled_from([b"a", b"b", b"c", b"d", b"x" * 100])
RECORDS = st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=60)), min_size=1, max_size=8)


@dataclass
class Model:
    """All that was ever appended to a partition."""

    records: list[tuple[int, bytes, bytes | None]] = field(default_factory=list)
    appended: dict[int, int] = field(default_factory=dict)
    end: int = 0

    def append(self, records: list[tuple[bytes, bytes | None]], now: int) -> None:
        for offset, (key, value) in enumerate(records, self.end):
            self.records.append((offset, key, value))
            self.appended[offset] = now
        self.end += len(records) + 1

    def latest(self) -> dict[bytes, tuple[int, bytes, bytes | None]]:
        return {record[1]: record for record in self.records}


class LogMachine(RuleBasedStateMachine):
    """Subclasses say which log."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = ManualClock()
        self.models = {source: Model() for source in SOURCES}
        self.log = self.open()
        self.run(self.log.start())
        self.run(self.log.create(SPECS))

    def open(self) -> LocalLog:
        raise NotImplementedError

    def run(self, what: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(what)

    def teardown(self) -> None:
        self.run(self.log.stop())
        self.loop.close()

    @rule(transaction=st.dictionaries(st.sampled_from(SOURCES), RECORDS, min_size=1, max_size=3))
    def append(self, transaction: dict[TopicPartition, list[tuple[bytes, bytes | None]]]) -> None:
        new: dict[TopicPartition, list[NewRecord]] = {
            source: [(key, value, 0, ()) for key, value in records] for source, records in transaction.items()
        }

        async def append() -> None:
            await (await self.log.writer()).append(new)

        self.run(append())
        for source, records in transaction.items():
            self.models[source].append(records, self.clock())

    @rule(milliseconds=st.sampled_from([1, 60, 130, 400, RETENTION_MS]))
    def wait(self, milliseconds: int) -> None:
        self.clock.advance(milliseconds)

    @rule()
    def clean(self) -> None:
        self.run(self.log.clean())
        for source, model in self.models.items():
            read = self.read(source)
            if source.topic == "compact":
                assert len({record[1] for record in read}) == len(read), "one record of each key is left"
            if source.topic == "brief":
                overdue = self.clock() - RETENTION_MS - RETENTION_MS // 8
                assert all(model.appended[offset] > overdue for offset, _, _ in read)

    @rule(source=st.sampled_from(SOURCES), share=st.floats(0, 1))
    def read_from_anywhere(self, source: TopicPartition, share: float) -> None:
        start, end = self.bounds(source)
        position = start + round((end - start) * share)
        assert self.read(source, position) == [record for record in self.read(source) if record[0] >= position]

    @invariant()
    def keeps_what_it_promised(self) -> None:
        for source, model in self.models.items():
            start, end = self.bounds(source)
            read = self.read(source)
            assert end == model.end
            if source.topic == "compact":
                assert start == 0
                self.check_compact(model, read)
            else:
                assert read == [record for record in model.records if record[0] >= start]
            if source.topic == "plain":
                assert start == 0
            if source.topic == "brief":
                fresh = self.clock() - RETENTION_MS
                assert all(offset >= start for offset, at in model.appended.items() if at > fresh)

    def check_compact(self, model: Model, read: list[tuple[int, bytes, bytes | None]]) -> None:
        appended = {record[0]: record for record in model.records}
        latest = model.latest()
        assert all(appended[record[0]] == record for record in read), "what is there was appended so"
        assert [record[0] for record in read] == sorted(record[0] for record in read)
        folded = {key: value for _, key, value in read}
        for key, (offset, _, value) in latest.items():
            if value is not None or self.clock() - model.appended[offset] < TOMBSTONE_MS:
                assert folded[key] == value
            else:
                assert folded.get(key) is None

    def bounds(self, source: TopicPartition) -> tuple[int, int]:
        async def ask() -> tuple[int, int]:
            return (await self.log.start_offsets([source]))[source], (await self.log.end_offsets([source]))[source]

        return self.run(ask())

    def read(self, source: TopicPartition, position: int | None = None) -> list[tuple[int, bytes, bytes | None]]:
        records = self.run(read_all(self.log, source, position))
        return [(record.offset, record.key or b"", record.value) for record in records]


class MemoryMachine(LogMachine):
    def open(self) -> MemoryLog:
        return MemoryLog(clock=self.clock)


class EmbeddedMachine(LogMachine):
    """With blocks, segments and passes so small that every history has many of them."""

    def open(self) -> EmbeddedLog:
        self.directory = tempfile.TemporaryDirectory()
        options = EmbeddedOptions(
            block_records=3, block_bytes=150, clean_keys=2, clean_step=4, maintenance_interval=1000
        )
        return EmbeddedLog(Path(self.directory.name), options=options, clock=self.clock)

    @rule()
    def restart(self) -> None:
        self.run(self.log.stop())
        self.run(self.log.start())

    def teardown(self) -> None:
        super().teardown()
        self.directory.cleanup()


MemoryMachine.TestCase.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
EmbeddedMachine.TestCase.settings = settings(
    max_examples=30, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
test_a_memory_log_behaves_like_the_model = MemoryMachine.TestCase
test_an_embedded_log_behaves_like_the_model = EmbeddedMachine.TestCase
