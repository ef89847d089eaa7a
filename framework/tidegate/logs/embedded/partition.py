"""A partition as its owner knows it: offsets, sizes, segments."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from tidegate.logs.base import TopicPartition, TopicSpec
from tidegate.logs.embedded.blocks import PartitionRow, Segment, block_key, prefix_of
from tidegate.logs.embedded.database import Changes
from tidegate.logs.embedded.options import EmbeddedOptions

__all__ = ("Partition", "Touch")

SEGMENTS = 8
"""Into how many segments the limits of a topic's retention are divided, at least: what is kept is over by one."""


class Partition:
    """One partition. `row` is what is committed; `next` counts what is only written, too."""

    def __init__(self, source: TopicPartition, spec: TopicSpec, topic_id: int, options: EmbeddedOptions) -> None:
        self.source = source
        self.row = PartitionRow()
        self.next = 0
        """The offset that the next record gets."""
        self.deleted = False
        self.dropped_to = 0
        """Blocks below were removed from the database since it was opened."""
        self.segments: deque[Segment] = deque()
        """The full ones, oldest first. The one that is being filled is in the row."""
        self._unsaved: list[tuple[int, Segment]] = []
        """Full ones that are not written down yet, each with its first offset."""
        self.key = prefix_of(b"p", topic_id, source.partition)
        self.segment_prefix = prefix_of(b"s", topic_id, source.partition)
        self.blocks = prefix_of(b"b", topic_id, source.partition)
        self._options = options
        self._follow(spec)

    def keep(self, spec: TopicSpec, now: int) -> None:
        """From now on, keep records as this says. What was to be kept for ever so far counts as appended now."""
        counted = self.expires
        self._follow(spec)
        if self.expires and not counted:
            row = self.row
            row.open_bytes = row.bytes - sum(segment.bytes for segment in self.segments)
            row.opened = row.touched = now

    def _follow(self, spec: TopicSpec) -> None:
        self.spec = spec
        self._segment_bytes = self._options.segment_bytes
        if spec.retention_bytes is not None:
            self._segment_bytes = min(self._segment_bytes, spec.retention_bytes // SEGMENTS)
        self._segment_ms = None if spec.retention_ms is None else spec.retention_ms // SEGMENTS

    @property
    def expires(self) -> bool:
        spec = self.spec
        return not spec.compact and (spec.retention_ms is not None or spec.retention_bytes is not None)

    def commit(self, touch: Touch) -> None:
        """Count what was appended and synced."""
        row = self.row
        if self.spec.compact:
            row.dirty_records += touch.records
        elif self.expires:
            self._fill_segment(touch)
        row.end = touch.end
        row.bytes += touch.bytes

    def save(self, changes: Changes) -> None:
        """Write down what `commit`, retention and compaction have changed."""
        for first, segment in self._unsaved:
            changes.put_row(block_key(self.segment_prefix, first), segment)
        self._unsaved.clear()
        changes.put_row(self.key, self.row)

    def take_expired(self, now: int) -> list[Segment]:
        """Take away the segments that need not be kept: nothing of them is read any more from here on."""
        row, spec = self.row, self.spec
        oldest = None if spec.retention_ms is None else now - spec.retention_ms
        over = 0 if spec.retention_bytes is None else row.bytes - spec.retention_bytes
        if oldest is not None and row.touched <= oldest:
            self._begin_segment()
        expired = []
        while self.segments:
            segment = self.segments[0]
            if segment.bytes > over and (oldest is None or segment.touched > oldest):
                break
            over -= segment.bytes
            row.start, row.bytes = segment.end, row.bytes - segment.bytes
            expired.append(self.segments.popleft())
        self._unsaved = [(first, segment) for first, segment in self._unsaved if segment.end > row.start]
        return expired

    def trim(self, start: int, kept: int) -> int:
        """Begin at `start`; what lies before `kept` is removed. Returns about how many bytes that is."""
        row = self.row
        before, row.start = row.start, max(row.start, start)
        removed = row.bytes * max(0, kept - before) // max(1, row.end - before)
        segments = sum(segment.bytes for segment in self.segments if segment.end <= kept)
        while self.segments and self.segments[0].end <= kept:
            self.segments.popleft()
        self._unsaved = [(first, segment) for first, segment in self._unsaved if segment.end > kept]
        removed = segments or removed
        row.bytes -= removed
        return removed

    def _fill_segment(self, touch: Touch) -> None:
        row = self.row
        old = self._segment_ms is not None and touch.appended - row.opened >= self._segment_ms
        if row.open_bytes >= self._segment_bytes or old:
            self._begin_segment()
        row.opened = row.opened if row.open_bytes else touch.appended
        row.touched = max(row.touched, touch.appended)
        row.open_bytes += touch.bytes

    def _begin_segment(self) -> None:
        """What was appended up to here is a segment."""
        row = self.row
        if row.open_bytes:
            first = self.segments[-1].end if self.segments else row.start
            segment = Segment(row.end, row.open_bytes, row.touched)
            self.segments.append(segment)
            self._unsaved.append((first, segment))
            row.open_bytes = 0


class Touch(NamedTuple):
    """What a transaction appended to one partition."""

    partition: Partition
    end: int
    records: int
    bytes: int
    appended: int
