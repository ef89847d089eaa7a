"""The context of a running handler: its state handles, its journal and its outputs.

A context serves one record after another as long as handlers finish without suspending. When a handler suspends, it
keeps the context, whose changes move to private cells (`detach`); when it finishes, they are merged into the shared
state (`reattach`).
"""

from __future__ import annotations

from contextlib import suppress
from itertools import chain
from typing import Any

from tidegate.codecs import encode_error
from tidegate.engine.formats.actor_message import ACTOR_HEADERS, ActorMessage
from tidegate.engine.keyed_state.state_backend import StateBackend
from tidegate.engine.keyed_state.timers import TimersHandle
from tidegate.engine.processing.input import Chunk, Input
from tidegate.engine.processing.mailbox import Mailbox
from tidegate.engine.processing.output import Emissions, Emitted, Output
from tidegate.errors import DataError, HandlerOverError, UndeclaredOutputError, UsageError
from tidegate.functions.context import Context, Origin, TaskInfo, Timer, Timers
from tidegate.functions.definition import BoundHandlers, ServiceDefinition
from tidegate.keys import decode_key, encode_key
from tidegate.logs.base import Headers, LogRecord, NewRecord, TopicPartition
from tidegate.logs.records import check_headers, check_size
from tidegate.state.cells import Ask, PrivateCells
from tidegate.state.handles import InlineValue, Single, StateHandle, ValueHandle
from tidegate.state.operator_state import OperatorHandle
from tidegate.state.overlay import OVER, Cells, Entry, Journal
from tidegate.time.clock import Clock, Instant, to_instant
from tidegate.time.combined_watermark import CombinedWatermark

__all__ = ("ORIGIN_HEADER", "STAMP_HEADER", "Stamp", "TaskContext", "origin_of", "own_headers")

STAMP_HEADER = "tidegate"
"""On every record that a task emits: app, run, sender, epoch."""
ORIGIN_HEADER = "tidegate-origin"
"""On re-keyed records: topic, partition and offset of the original record."""


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
    """The engine sets the attributes of the current record directly: a call per record would be too slow."""

    __slots__ = (
        "_clock",
        "_definition",
        "_detached_stamp",
        "_handles",
        "_info",
        "_key_check",
        "_objects",
        "_outputs",
        "_record",
        "_shared_emitted",
        "_time",
        "_timers",
        "answer",
        "bound",
        "chunk",
        "default_output",
        "emitted",
        "fired",
        "first_output",
        "inline_value",
        "is_late",
        "journal",
        "leaf_handles",
        "loops",
        "mail",
        "message",
        "mutable",
        "only_state",
        "private",
        "source",
        "stamp",
        "timers_set",
    )

    def __init__(
        self,
        definition: ServiceDefinition,
        info: TaskInfo,
        backend: StateBackend,
        outputs: dict[str, Output],
        emitted: Emissions,
        stamp: Stamp,
        mail: Mailbox,
        clock: Clock,
        time: CombinedWatermark,
        opened: Any,
    ) -> None:
        self._definition, self._info, self._outputs, self._clock, self._time = definition, info, outputs, clock, time
        self.default_output = next(iter(outputs.values()), None)
        self.stamp, self.mail = stamp, mail
        self._shared_emitted = emitted
        self.emitted = emitted
        self.journal = Journal(clock.now, lambda: time.age, check_encoding=backend.check_encoding)
        self._objects = backend.handles(self.journal)
        self._handles: list[StateHandle] = list(self._objects.values())
        self.leaf_handles: list[StateHandle] = [leaf for handle in self._handles for leaf in handle.leaf_handles]
        """The handles whose `seen` is reset before each record."""
        only, cells = next(iter(self._handles), None), backend.only_plain
        self.only_state = (only, cells) if isinstance(only, Single) and cells is not None else (None, None)
        """The only state of the service and its cells, if it is plain: the hot loop looks up its entries itself."""
        self.mutable = backend.check_encoding or any(cells.mutable for cells in backend.all)
        """Whether values are encoded when a handler finishes."""
        self._key_check = next((handle for handle in self._handles if isinstance(handle, Single)), None)
        """A state whose first access checks that the key belongs to this task: see `StateBackend`."""
        timeless = all(topic.mailbox for topic in definition.topics)
        self._timers = TimersHandle(
            info.service, definition.handles_timer, backend.timers, self.journal, clock, timeless=timeless
        )
        self.timers_set: list[Entry] = self._timers.set
        """Timers that the running handler has set; always the same list object."""
        self.bound: BoundHandlers = definition.bind(self._objects, opened)
        self.inline_value = self._new_inline_value()
        """What handlers get in place of the state handle, if the only state of the service is a plain ValueState."""
        self.loops: dict[Any, Any] = {}
        """The hot loops over this context; owned by `RecordOperator`."""
        self.private: dict[Cells, PrivateCells] | None = None
        self._detached_stamp = stamp.headers
        # The current record.
        self.chunk: Chunk | None = None
        """The chunk of the current record in the hot loop, which then creates no record object unless one is needed."""
        self._record: LogRecord | None = None
        self.source: TopicPartition | None = None
        self.is_late: bool | None = False
        """None: the watermark has not moved since the handler began, so `late` can still be computed."""
        self.fired: Timer | None = None
        self.first_output: int | None = None
        """Index in `emitted` of its first output; None: it has none yet."""
        self.message: ActorMessage | None = None
        """The actor message that is being handled, if any."""
        self.answer: bytes | None = None
        """The encoded reply to it."""

    def _new_inline_value(self) -> InlineValue | None:
        only, _ = self.only_state
        if self.mutable or type(only) is not ValueHandle:
            return None
        return InlineValue(only) if any(handler.states == (only,) for handler in self.bound.inputs.values()) else None

    def inline_value_for(self, input_: Input) -> InlineValue | None:
        """`inline_value`, if the handler of this input takes it."""
        return self.inline_value if self.bound.inputs[input_.topic.name].states else None

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
        self.hold(record)
        self.source, self.is_late, self.fired = source, late, fired
        self.journal.key, self.journal.timestamp = key, timestamp
        self.first_output = None
        for handle in self.leaf_handles:
            handle.seen = None

    @property
    def record(self) -> LogRecord | None:
        return self._record if self.chunk is None else self.chunk.current

    def hold(self, record: LogRecord | None) -> None:
        """Keep this as the current record while the hot loop handles later records of the chunk."""
        self._record, self.chunk = record, None

    def end(self) -> None:
        """No handler runs until the next `begin`. An asyncio task that a handler has left behind must not access state
        under the key of another record: with this key every access raises HandlerOverError."""
        self.journal.key, self.first_output = OVER, None
        for handle in self.leaf_handles:
            handle.seen = None

    def rollback(self) -> None:
        """The handler failed: undo its state changes, timers and outputs."""
        self.message = None
        self.timers_set.clear()
        self.journal.checks.clear()
        if self.private is not None:
            self._use_shared_cells()
            return
        self.journal.rollback()
        if self.first_output is not None:
            del self.emitted[self.first_output :]

    def detach(self, ask: Ask | None = None) -> None:
        """The handler suspends: move its changes to private cells, and roll the shared state back. `ask`: how a handler
        in a thread reads shared state."""
        private: dict[Cells, PrivateCells] = {}

        def move(cells: Cells) -> PrivateCells:
            if cells not in private:
                private[cells] = PrivateCells(cells, ask)
            return private[cells]

        undo: list[tuple[Entry, Any, int, Cells]] = []
        copies: dict[Entry, Entry] = {}  # one copy per entry, however often the handler changed it
        for entry, before, expires, cells in self.journal.undo:
            mine = move(cells)
            if entry not in copies:
                copies[entry] = mine.copy_changed(entry)
                undo.append((copies[entry], before, expires, mine))
            if not cells.mutable or entry.expires != expires:
                mine.mark_dirty(copies[entry])
        self.timers_set[:] = [copies[entry] for entry in self.timers_set]
        shared = self._shared_emitted
        first = len(shared) if self.first_output is None else self.first_output
        self.emitted = Emissions(shared[first:])
        del shared[first:]
        self.is_late, self.first_output = self.late, 0
        self._detached_stamp = self.stamp.headers
        self.journal.rollback()
        self.journal.undo[:] = undo
        for handle in self._handles:
            handle.move_to(move)
        self._timers.move_to(move)
        self.private = private

    def preload(self) -> None:
        """Before the handler runs in a thread: copy the states of one entry per key, which saves a round trip each."""
        for handle in self._handles:
            if isinstance(handle, Single) and isinstance(handle.cells, PrivateCells):
                with suppress(DataError):  # raised again when the handler accesses the state
                    handle.cells.copy(self.journal.key)

    def abandon(self) -> None:
        """The handler still runs in a thread, which cannot be stopped: its accesses raise HandlerOverError from now on,
        and its changes are discarded. The context is not used again."""
        self.end()

    def reattach(self) -> None:
        """A handler that had suspended has finished: merge its changes and outputs into the shared state."""
        self.journal.settle()
        private = self.private or {}
        operators = [handle for handle in self._handles if isinstance(handle, OperatorHandle)]
        operator_cells = {handle.cells for handle in operators}
        for mine in private.values():
            if mine not in operator_cells:
                mine.merge()
        emitted = self.emitted
        if self._detached_stamp is not self.stamp.headers:  # the outputs belong to the current epoch
            emitted = Emissions(chain.from_iterable(map(self._stamped, emitted.each())))
        self._use_shared_cells()
        self.emitted.extend(emitted)
        for handle in operators:
            handle.redo()
        self.journal.settle()

    def _stamped(self, emitted: Emitted) -> Emitted:
        target, key, value, timestamp, headers = emitted
        return target, key, value, timestamp, (*headers[:-1], *self.stamp.headers)

    def _use_shared_cells(self) -> None:
        """Point the handles at the shared cells again."""

        def move(cells: Cells) -> Cells:
            return cells.shared if isinstance(cells, PrivateCells) else cells

        for handle in self._handles:
            handle.move_to(move)
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
        return self._time.current

    @property
    def late(self) -> bool:
        return self.journal.timestamp <= self._time.current if self.is_late is None else self.is_late

    @property
    def now(self) -> int:
        return self._clock.now()

    @property
    def headers(self) -> Headers:
        record = self.record
        if record is None:
            return ()
        return tuple(header for header in own_headers(record) if header[0] not in ACTOR_HEADERS)

    @property
    def origin(self) -> Origin | None:
        record = self.record
        return None if record is None or self.source is None else origin_of(record, self.source)

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
        output = self.default_output if to is None else self._outputs.get(_name(to))
        if output is None:
            raise UndeclaredOutputError(self._info.service, _name(to), self._outputs)
        if type(value) is not output.exact:
            if value is None:
                self._delete(output, key, timestamp, headers)
                return
            if not output.check(value):
                raise encode_error(output.codec, value)
        encode = output.encode  # a local: calling the attribute would look it up as a method first
        try:
            raw = encode(value)
        except output.codec.encode_failures as error:
            raise encode_error(output.codec, value, error) from error
        journal, key_check, target = self.journal, self._key_check, output.co_partition
        own = journal.key
        if (
            key is None
            and timestamp is None
            and not headers
            and target is not None
            and key_check is not None
            and key_check.seen is not None
            and len(raw) + len(own) <= output.check_above
        ):
            record: Emitted = (target, own, raw, journal.timestamp, self.stamp.headers)
        else:
            record = self._place(output, value, raw, key, timestamp, headers)
        emitted = self.emitted
        if self.first_output is None:
            if own is OVER:
                raise HandlerOverError
            self.first_output = len(emitted)
        emitted += record

    def delete(self, key: Any, *, to: Any = None, timestamp: Instant | None = None, headers: Headers = ()) -> None:
        self.emit(None, to=to, key=key, timestamp=timestamp, headers=headers)

    def _delete(self, output: Output, key: Any, timestamp: Instant | None, headers: Headers) -> None:
        """A tombstone."""
        target, *record = self._place(output, None, output.topic.encode(None), key, timestamp, headers)
        self.put(target, tuple(record))  # type: ignore[arg-type]

    def _place(
        self, output: Output, value: Any, raw: bytes | None, key: Any, timestamp: Instant | None, headers: Headers
    ) -> Emitted:
        """The record and its target, for the cases that the fast path of `emit` does not cover."""
        journal, target = self.journal, None
        if key is not None:
            key_bytes = encode_key(key)
        elif output.key_of is not None:
            key_bytes = output.key_of(value)
        else:
            key_bytes = journal.key
            if self._key_check is not None and self._key_check.seen is not None:
                target = output.co_partition
        when = journal.timestamp if timestamp is None else to_instant(timestamp, now=journal.timestamp)
        stamp = (*headers, *self.stamp.headers) if headers else self.stamp.headers
        if headers or len(raw or b"") + len(key_bytes) > output.check_above:
            check_headers(headers)
            check_size(output.topic.name, (key_bytes, raw, when, stamp), output.limit)
        if target is None:
            target = output.sources[output.place(key_bytes)]
        return target, key_bytes, raw, when, stamp

    def tell(
        self,
        service: Any,
        key: Any,
        message: Any,
        *,
        timestamp: Instant | None = None,
        headers: Headers = (),
    ) -> None:
        now = self.journal.timestamp
        when = now if timestamp is None else to_instant(timestamp, now=now)
        self.put(*self.mail.outgoing_record(_name(service), key, message, when, headers))

    def reply(self, value: Any) -> None:
        if self.answer is not None and self.message is not None:
            raise UsageError(f"a handler of {self._info.service!r} replies twice to {self.message.name!r}: reply once")
        self.answer = self.mail.encode_reply(self.message, value)

    def begin_message(self, message: ActorMessage) -> None:
        self.message, self.answer = message, None

    def end_message(self) -> bytes | None:
        """Returns the encoded reply."""
        self.message = None
        return self.answer

    def put(self, target: TopicPartition, record: NewRecord) -> None:
        """Add a record to the outputs of the handler."""
        if self.first_output is None:
            if self.journal.key is OVER:
                raise HandlerOverError
            self.first_output = len(self.emitted)
        self.emitted.extend((target, *record))

    def state(self, name: str) -> Any:
        """A state of the current key, by its name."""
        return self._objects[name]


def own_headers(record: LogRecord) -> Headers:
    """The headers without Tidegate's. A Kafka header without a value gets an empty one."""
    ours = (STAMP_HEADER, ORIGIN_HEADER)
    return tuple((name, value or b"") for name, value in record.headers if name not in ours)


def origin_of(record: LogRecord, source: TopicPartition) -> Origin:
    """Where a record was read; for a re-keyed record, where the original was. Other producers may write a header
    of that name: one that cannot be parsed is ignored."""
    for name, value in record.headers:
        if name == ORIGIN_HEADER:
            with suppress(ValueError):
                topic, partition, offset = (value or b"").decode().rsplit(":", 2)
                return Origin(topic, int(partition), int(offset))
    return Origin(source.topic, source.partition, record.offset)


def _name(to: Any) -> str:
    if isinstance(to, str):
        return to
    if to is None:
        return "(the default output)"
    definition = getattr(to, "definition", to)
    return str(definition.name)
