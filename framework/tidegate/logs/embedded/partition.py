"""A partition as its owner knows it: offsets, sizes, segments."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from tidegate.logs.base import TopicPartition, TopicSpec
from tidegate.logs.embedded.blocks import PartitionRow, Segment, prefix_of
from tidegate.logs.embedded.options import EmbeddedOptions

__all__ = ("Partition", "Touch")

SEGMENTS = 8
"""Into how many segments the limits of a topic's retention are divided, at least: what is kept is over by one."""


class Partition:
    """One partition. `row` is what is committed; `next` counts what is only written, too."""

    def __init__(self, source: TopicPartition, spec: TopicSpec, topic_id: int, options: EmbeddedOptions) -> None:
        self.source = source
        self.spec = spec
        self.row = PartitionRow()
        self.next = 0
        """The offset that the next record gets."""
        self.deleted = False
        self.segments: deque[Segment] = deque()
        """The full ones, oldest first. The one that is being filled is in the row."""
        self.key = prefix_of(b"p", topic_id, source.partition)
        self.segment_prefix = prefix_of(b"s", topic_id, source.partition)
        self.blocks = prefix_of(b"b", topic_id, source.partition)
        self._segment_bytes = options.segment_bytes
        if spec.retention_bytes is not None:
            self._segment_bytes = min(options.segment_bytes, spec.retention_bytes // SEGMENTS)
        self._segment_ms = None if spec.retention_ms is None else spec.retention_ms // SEGMENTS

    @property
    def expires(self) -> bool:
        spec = self.spec
        return not spec.compact and (spec.retention_ms is not None or spec.retention_bytes is not None)

    def commit(self, touch: Touch) -> None:
        """Count what was appended and synced."""
        row = self.row
        row.end = touch.end
        row.bytes += touch.bytes
        if self.spec.compact:
            row.dirty_records += touch.records
        elif self.expires:
            row.opened = row.opened if row.open_bytes else touch.appended
            row.touched = max(row.touched, touch.appended)
            row.open_bytes += touch.bytes

    def seal(self, *, full: bool = False) -> tuple[int, Segment] | None:
        """If the segment that is being filled is full, begin another. Returns the full one with its first offset."""
        row = self.row
        old = self._segment_ms is not None and row.touched - row.opened >= self._segment_ms
        if not row.open_bytes or not (full or old or row.open_bytes >= self._segment_bytes):
            return None
        first = self.segments[-1].end if self.segments else row.start
        segment = Segment(row.end, row.open_bytes, row.touched)
        self.segments.append(segment)
        row.open_bytes = 0
        return first, segment


class Touch(NamedTuple):
    """What a transaction appended to one partition."""

    partition: Partition
    end: int
    records: int
    bytes: int
    appended: int
