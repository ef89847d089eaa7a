"""One input partition of a task: its decoder and time, its position, and its unfinished records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import length_hint
from typing import Any, Final, TypeVar

from tidegate.engine.formats.commit_marker import InputMark
from tidegate.errors import DecodeError
from tidegate.functions.definition import InputSpec
from tidegate.logs.base import LogRecord, TopicPartition
from tidegate.logs.records import select
from tidegate.time.clock import MIN_TIME, Clock
from tidegate.time.combined_watermark import CombinedWatermark
from tidegate.time.watermark_assigner import WatermarkAssigner

__all__ = ("Chunk", "Input")

T = TypeVar("T")

_NOTHING: Final[list[Any]] = []


class Chunk:
    """Records that were read together; those from `index` on are not started yet."""

    __slots__ = ("_rest", "_upto", "epoch", "input", "position", "records", "watermark")

    def __init__(self, input_: Input, records: Sequence[LogRecord], position: int, epoch: int = 0) -> None:
        self.input, self.records, self.position = input_, records, position
        self.epoch = epoch
        """The task must be in this epoch or a later one before it handles the records."""
        self.index = 0
        self.watermark = MIN_TIME
        """The watermark that a generator returned for the current record."""

    @property
    def index(self) -> int:
        """How many of the records have been started."""
        return self._upto - length_hint(self._rest)

    @index.setter
    def index(self, index: int) -> None:
        self._upto, self._rest = index, iter(_NOTHING)

    def follow(self, values: list[T], upto: int) -> Iterator[T]:
        """An iterator over `values`, which belong to the records up to index `upto`. Each step starts a record. The
        index costs nothing per record: it is computed from the iterator's length hint."""
        rest = iter(values)
        self._upto, self._rest = upto, rest
        return rest

    @property
    def current(self) -> LogRecord:
        """The record that was started last."""
        return self.records[self.index - 1]


class Input:
    def __init__(self, spec: InputSpec, source: TopicPartition, clock: Clock, combined: CombinedWatermark) -> None:
        """`combined`: the watermark of the task."""
        topic, channel = spec.topic, combined.outside.get(source)
        self.topic, self.handler, self.source = topic, spec.handler, source
        self.time = WatermarkAssigner(topic.time, channel, clock, combined)
        self.outside = channel is not None or topic.carried
        """No task of the current run writes this partition."""
        self.single_run = topic.internal or topic.carried
        """The partition holds records of the current run only."""
        self.codec = topic.codec
        self.decode: Callable[[bytes], Any] = topic.codec.decode_raw
        self.takes_tombstones = spec.handler.takes_tombstones
        self.position = 0
        """All records below have been started."""
        self.unfinished: dict[int, None] = {}
        """Offsets of records that were started and are not finished: their handlers are suspended or queued."""
        self._again: set[int] = set()
        self._again_below = 0

    def read(self, raw: bytes | None) -> Any:
        """The decoded value of a record; None for a tombstone. The hot loop has the same steps inlined."""
        if raw is None and not self.takes_tombstones:
            raise DecodeError(
                f"the record of {self.topic.name!r} has no value: it is a tombstone. To handle tombstones, let the "
                f"handler's event type allow None: event: X | None"
            )
        return self.topic.decode(raw)

    @property
    def mark(self) -> InputMark:
        """The positions for a commit. While unfinished records from before a restart are started again, all other
        records up to the position of that time are finished."""
        if self.position >= self._again_below:
            return InputMark(position=self.position, unfinished=list(self.unfinished))
        coming = sorted(offset for offset in self._again if offset >= self.position)
        return InputMark(position=self._again_below, unfinished=[*self.unfinished, *coming])

    @property
    def catching_up(self) -> bool:
        """Whether records that were unfinished before the last crash have not been started again yet."""
        return self.position < self._again_below

    @property
    def handled(self) -> int:
        """All records below are finished."""
        return next(iter(self.unfinished), self.position)

    def restore(self, mark: InputMark) -> None:
        """Resume after a crash: below the mark's position, only unfinished records are handled again."""
        self.position = mark.resume_at
        self._again, self._again_below = set(mark.unfinished), mark.position
        self.unfinished.clear()

    def fresh(self, records: Sequence[LogRecord]) -> Sequence[LogRecord]:
        """The records that were not finished before the last crash."""
        below = self._again_below
        if not records or records[0].offset >= below:
            return records
        wanted = [record.offset >= below or record.offset in self._again for record in records]
        return select(records, wanted)
