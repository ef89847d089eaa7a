"""One input partition of a task: how its records are read, and which of them are done."""

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
    """Records that were read and are being handled, from `index` on."""

    __slots__ = ("_rest", "_upto", "epoch", "input", "mark", "position", "records")

    def __init__(self, input_: Input, records: Sequence[LogRecord], position: int, epoch: int = 0) -> None:
        self.input, self.records, self.position = input_, records, position
        self.epoch = epoch
        """The task must be in this one, or a later one, before it handles any of them."""
        self.index = 0
        self.mark = MIN_TIME
        """The watermark that a generator has given for the record that is being handled."""

    @property
    def index(self) -> int:
        """How many of them were taken up."""
        return self._upto - length_hint(self._rest)

    @index.setter
    def index(self, index: int) -> None:
        self._upto, self._rest = index, iter(_NOTHING)

    def follow(self, values: list[T], upto: int) -> Iterator[T]:
        """`values`: of the records up to this index. To iterate over them takes the records up. That costs nothing per
        record, since the iterator itself knows how many are left."""
        rest = iter(values)
        self._upto, self._rest = upto, rest
        return rest

    @property
    def current(self) -> LogRecord:
        """The record that is being handled, or was last."""
        return self.records[self.index - 1]


class Input:
    def __init__(self, spec: InputSpec, source: TopicPartition, clock: Clock, combined: CombinedWatermark) -> None:
        """`combined`: the watermark of the task."""
        topic, channel = spec.topic, combined.outside.get(source)
        self.topic, self.handler, self.source = topic, spec.handler, source
        self.time = WatermarkAssigner(topic.time, channel, clock, combined)
        self.outside = channel is not None or topic.carried
        """No task of this run writes it."""
        self.own = topic.internal or topic.carried
        """Made for this run alone: there is nothing of other runs in it."""
        self.codec = topic.codec
        self.decode: Callable[[bytes], Any] = topic.codec.decode_raw
        self.takes_tombstones = spec.handler.takes_tombstones
        self.position = 0
        """Everything below was taken up."""
        self.unfinished: dict[int, None] = {}
        """Offsets that were taken up and are not done: their handlers wait, or wait for their turn."""
        self._again: set[int] = set()
        self._again_below = 0

    def read(self, raw: bytes | None) -> Any:
        """A record's value, as the handler takes it; None for a tombstone. The hot loop does the same by itself."""
        if raw is None and not self.takes_tombstones:
            raise DecodeError(
                f"the record of {self.topic.name!r} has no value: it is a tombstone. To handle tombstones, let the "
                f"handler's event type allow None: event: X | None"
            )
        return self.topic.decode(raw)

    @property
    def mark(self) -> InputMark:
        """As long as the last life's unfinished records are being taken up again, all others up to where it came are
        done."""
        if self.position >= self._again_below:
            return InputMark(position=self.position, unfinished=list(self.unfinished))
        coming = sorted(offset for offset in self._again if offset >= self.position)
        return InputMark(position=self._again_below, unfinished=[*self.unfinished, *coming])

    @property
    def catching_up(self) -> bool:
        """Records that were unfinished before the last crash are not all taken up yet."""
        return self.position < self._again_below

    @property
    def handled(self) -> int:
        """Everything below is done."""
        return next(iter(self.unfinished), self.position)

    def restore(self, mark: InputMark) -> None:
        """Go on after a crash: below the mark's position, only what was unfinished is handled again."""
        self.position = mark.resume_at
        self._again, self._again_below = set(mark.unfinished), mark.position
        self.unfinished.clear()

    def fresh(self, records: Sequence[LogRecord]) -> Sequence[LogRecord]:
        """Those that were not handled before the last crash."""
        below = self._again_below
        if not records or records[0].offset >= below:
            return records
        wanted = [record.offset >= below or record.offset in self._again for record in records]
        return select(records, wanted)
