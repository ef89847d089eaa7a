"""The context of a running handler: one set of state objects, a journal, and where its outputs go.

A context is used for one record after another as long as handlers finish without suspending. When one suspends, its
context goes private with it (`part`) and comes back (`rejoin`) when it is done.
"""

from __future__ import annotations

from typing import Any

from tidegate.codecs import encode_error
from tidegate.engine.outputs import Emitted, Output
from tidegate.engine.space import StateSpace
from tidegate.engine.timers import LiveTimers
from tidegate.errors import UndeclaredOutputError
from tidegate.functions.context import Context, Origin, TaskInfo, Timer, Timers
from tidegate.functions.service import Bound, ServiceDefinition
from tidegate.keys import decode_key, encode_key
from tidegate.logs.base import Headers, LogRecord, TopicPartition
from tidegate.logs.records import check_headers, check_size
from tidegate.state.live import (
    Live,
    LiveOperator,
)
from tidegate.state.overlay import Cells, Entry, Journal, PrivateCells
from tidegate.time.clock import Clock, Instant, to_instant
from tidegate.time.progress import TaskTime

__all__ = ("ORIGIN_HEADER", "STAMP_HEADER", "Stamp", "TaskContext", "origin_of", "own_headers")

STAMP_HEADER = "tidegate"
"""On every record that a task emits: app, run, sender, epoch."""
ORIGIN_HEADER = "tidegate-origin"
"""On re-keyed records: where they were read first."""


class Stamp:
    """The header of every record that a task emits: which app, run, task and epoch sent it."""

    def __init__(self, app: str, run: str, task: str) -> None:
        self._fixed = f"{app}|{run}|{task}|"
        self.epoch = 0

    @property
    def epoch(self) -> int:
        return self._epoch

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self._epoch = epoch
        self.headers: tuple[tuple[str, bytes], ...] = ((STAMP_HEADER, f"{self._fixed}{epoch}".encode()),)


class TaskContext(Context):
    """See the module. The engine sets the attributes of the current record directly: it does so for every one."""

    def __init__(
        self,
        definition: ServiceDefinition,
        info: TaskInfo,
        space: StateSpace,
        outputs: dict[str, Output],
        emitted: list[Emitted],
        stamp: Stamp,
        clock: Clock,
        time: TaskTime,
        opened: Any,
    ) -> None:
        self._definition, self._info, self._outputs, self._clock, self._time = definition, info, outputs, clock, time
        self._default = next(iter(outputs.values()), None)
        self.stamp = stamp
        self._shared_emitted = emitted
        self.emitted = emitted
        self.journal = Journal(clock.now, lambda: time.age, careful=space.careful)
        self._objects = space.objects(self.journal)
        self._live: list[Live] = list(self._objects.values())
        self.parts: list[Live] = [part for live in self._live for part in live.parts]
        """What must forget, before each record, what it has seen."""
        self.mutable = space.careful or any(cells.mutable for cells in space.all)
        """Whether anything must be encoded when a handler ends."""
        self._timers = LiveTimers(info.service, definition.handles_timer, space.timers, self.journal, clock)
        self.timers_set: list[Entry] = self._timers.set
        """What the running handler has set; always the same list."""
        self.bound: Bound | None = None
        if definition.forward is None:
            self.bound = definition.bind(self._objects, opened)
        self.private: dict[Cells, PrivateCells] | None = None
        # The current record.
        self.record: LogRecord | None = None
        self.source: TopicPartition | None = None
        self.is_late = False
        self.fired: Timer | None = None
        self.mark = 0

    # -- for the engine ----------------------------------------------------------------------------------------------
    def begin(
        self,
        key: bytes,
        timestamp: int,
        record: LogRecord | None,
        source: TopicPartition | None,
        late: bool,
        fired: Timer | None = None,
    ) -> None:
        self.record, self.source, self.is_late, self.fired = record, source, late, fired
        self.journal.key, self.journal.timestamp = key, timestamp
        self.mark = len(self.emitted)
        for part in self.parts:
            part.seen = None

    def rollback(self) -> None:
        """The handler failed: nothing of it happened."""
        self.timers_set.clear()
        if self.private is not None:
            self._leave()
            return
        self.journal.rollback()
        del self.emitted[self.mark :]

    def part(self) -> None:
        """The handler suspends: what it did so far becomes its own, and the shared state is as before it."""
        private: dict[Cells, PrivateCells] = {}

        def move(cells: Cells) -> PrivateCells:
            if cells not in private:
                private[cells] = PrivateCells(cells)
            return private[cells]

        undo: list[tuple[Entry, Any, int, Cells]] = []
        copies: dict[Entry, Entry] = {}  # one of each, however often it was touched: the handler goes on with that one
        for entry, before, expires, cells in self.journal.undo:
            mine = move(cells)
            if entry not in copies:
                copies[entry] = mine.take_over(entry)
                undo.append((copies[entry], before, expires, mine))
            if not cells.mutable or entry.expires != expires:
                mine.mark(copies[entry])
        self.timers_set[:] = [copies[entry] for entry in self.timers_set]
        self.emitted, own = self._shared_emitted[self.mark :], self._shared_emitted
        del own[self.mark :]
        self.journal.rollback()
        self.journal.undo[:] = undo
        for live in self._live:
            live.move_to(move)
        self._timers.move_to(move)
        self.private = private

    def rejoin(self) -> None:
        """The handler finished after it had suspended: what it did becomes everybody's."""
        self.journal.settle()
        private = self.private or {}
        operators = [live for live in self._live if isinstance(live, LiveOperator)]
        apart = {live.cells for live in operators}
        for mine in private.values():
            if mine not in apart:
                mine.merge()
        emitted = self.emitted
        self._leave()
        self.emitted.extend(emitted)
        for live in operators:
            live.redo()
        self.journal.settle()

    def _leave(self) -> None:
        """Back to the shared cells."""

        def move(cells: Cells) -> Cells:
            return cells.shared if isinstance(cells, PrivateCells) else cells

        for live in self._live:
            live.move_to(move)
        self._timers.move_to(move)
        self.journal.undo.clear()
        self.emitted = self._shared_emitted
        self.private = None

    # -- for handlers ------------------------------------------------------------------------------------------------
    @property
    def key(self) -> Any:
        return decode_key(self.journal.key, self._definition.key_type)

    @property
    def timestamp(self) -> int:
        return self.journal.timestamp

    @property
    def watermark(self) -> int:
        return self._time.watermark

    @property
    def late(self) -> bool:
        return self.is_late

    @property
    def now(self) -> int:
        return self._clock.now()

    @property
    def headers(self) -> Headers:
        return () if self.record is None else own_headers(self.record)

    @property
    def origin(self) -> Origin | None:
        return None if self.record is None or self.source is None else origin_of(self.record, self.source)

    @property
    def timer(self) -> Timer | None:
        return self.fired

    @property
    def task(self) -> TaskInfo:
        return self._info

    @property
    def timers(self) -> Timers:
        return self._timers

    def emit(
        self,
        value: Any,
        *,
        to: Any = None,
        key: Any = None,
        timestamp: Instant | None = None,
        headers: Headers = (),
    ) -> None:
        output = self._default if to is None else self._outputs.get(_name(to))
        if output is None:
            raise UndeclaredOutputError(self._info.service, _name(to), self._outputs)
        if not output.check(value):
            raise encode_error(output.codec, value)
        try:
            raw = output.encode(value)
        except output.codec.encode_failures as error:
            raise encode_error(output.codec, value, error) from error
        journal = self.journal
        if key is not None:
            key_bytes = encode_key(key)
        elif output.key_of is not None:
            key_bytes = output.key_of(value)
        else:
            key_bytes = journal.key
        when = journal.timestamp if timestamp is None else to_instant(timestamp)
        stamp = (*headers, *self.stamp.headers) if headers else self.stamp.headers
        if headers or len(raw) + len(key_bytes) > output.large:
            check_headers(headers)
            check_size(output.topic.name, (key_bytes, raw, when, stamp), output.limit)
        self.emitted.append((output.sources[output.place(key_bytes)], key_bytes, raw, when, stamp))

    def forward(self, key: Any) -> None:
        """Send the current record on as it is, under another key."""
        output, record, source = self._default, self.record, self.source
        if output is None or record is None or source is None:
            raise UndeclaredOutputError(self._info.service, "its internal topic", self._outputs)
        key_bytes = encode_key(key)
        where = f"{source.topic}:{source.partition}:{record.offset}".encode()
        headers = (*self.headers, (ORIGIN_HEADER, where), *self.stamp.headers)
        check_size(output.topic.name, (key_bytes, record.value, 0, headers), output.limit)
        target = output.sources[output.place(key_bytes)]
        self.emitted.append((target, key_bytes, record.value, self.journal.timestamp, headers))


def own_headers(record: LogRecord) -> Headers:
    """Those that its sender gave it."""
    return tuple(header for header in record.headers if header[0] not in (STAMP_HEADER, ORIGIN_HEADER))


def origin_of(record: LogRecord, source: TopicPartition) -> Origin:
    """Where a record was read; before it was re-keyed, if it was."""
    for name, value in record.headers:
        if name == ORIGIN_HEADER:
            topic, partition, offset = value.decode().rsplit(":", 2)
            return Origin(topic, int(partition), int(offset))
    return Origin(source.topic, source.partition, record.offset)


def _name(to: Any) -> str:
    if isinstance(to, str):
        return to
    if to is None:
        return "(the default output)"
    definition = getattr(to, "definition", to)
    return str(definition.name)
