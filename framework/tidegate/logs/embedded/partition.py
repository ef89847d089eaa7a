"""A partition of the embedded log in its owner: offsets, sizes, segments."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from tidegate.logs.base import TopicPartition, TopicSpec
from tidegate.logs.embedded.blocks import PartitionRow, Segment, block_key, prefix_of
from tidegate.logs.embedded.database import Changes
from tidegate.logs.embedded.options import EmbeddedOptions

__all__ = ("Partition", "PartitionAppend")

SEGMENTS = 8
"""Least number of segments that the retention of a topic is divided into: it is exceeded by at most one segment."""


class Partition:
    """One partition. `row` covers committed records; `next_offset` also counts written records that are not synced."""

    def __init__(self, source: TopicPartition, spec: TopicSpec, topic_id: int, options: EmbeddedOptions) -> None:
        self.source = source
        self.row = PartitionRow()
        self.next_offset = 0
        """The offset of the next record."""
        self.deleted = False
        self.deleted_to = 0
        """Blocks below were deleted from the database since it was opened."""
        self.segments: deque[Segment] = deque()
        """Closed segments, oldest first. The active segment is in the row."""
        self._unsaved: list[tuple[int, Segment]] = []
        """Closed segments that are not written yet, each with its first offset."""
        self.row_key = prefix_of(b"p", topic_id, source.partition)
        self.segment_prefix = prefix_of(b"s", topic_id, source.partition)
        self.block_prefix = prefix_of(b"b", topic_id, source.partition)
        self._options = options
        self._apply(spec)

    def set_retention(self, spec: TopicSpec, now: int) -> None:
        """Changes the retention. Records that had none before count as appended now."""
        had_retention = self.has_retention
        self._apply(spec)
        if self.has_retention and not had_retention:
            row = self.row
            row.open_bytes = row.bytes - sum(segment.bytes for segment in self.segments)
            row.opened = row.last_append = now

    def _apply(self, spec: TopicSpec) -> None:
        self.spec = spec
        self._segment_bytes = self._options.segment_bytes
        if spec.retention_bytes is not None:
            self._segment_bytes = min(self._segment_bytes, spec.retention_bytes // SEGMENTS)
        self._segment_ms = None if spec.retention_ms is None else spec.retention_ms // SEGMENTS

    @property
    def has_retention(self) -> bool:
        spec = self.spec
        return not spec.compact and (spec.retention_ms is not None or spec.retention_bytes is not None)

    def commit(self, append: PartitionAppend) -> None:
        """Account for a synced append."""
        row = self.row
        if self.spec.compact:
            row.dirty_records += append.records
        elif self.has_retention:
            self._fill_segment(append)
        row.end = append.end
        row.bytes += append.bytes

    def save(self, changes: Changes) -> None:
        """Add the row and the segments to a write."""
        for first, segment in self._unsaved:
            changes.put_row(block_key(self.segment_prefix, first), segment)
        self._unsaved.clear()
        changes.put_row(self.row_key, self.row)

    def take_expired(self, now: int) -> list[Segment]:
        """Remove and return the expired segments. Their records are not readable any more."""
        row, spec = self.row, self.spec
        oldest = None if spec.retention_ms is None else now - spec.retention_ms
        over = 0 if spec.retention_bytes is None else row.bytes - spec.retention_bytes
        if oldest is not None and row.last_append <= oldest:
            self._close_segment()
        expired = []
        while self.segments:
            segment = self.segments[0]
            if segment.bytes > over and (oldest is None or segment.last_append > oldest):
                break
            over -= segment.bytes
            row.start, row.bytes = segment.end, row.bytes - segment.bytes
            expired.append(self.segments.popleft())
        self._unsaved = [(first, segment) for first, segment in self._unsaved if segment.end > row.start]
        return expired

    def trim(self, start: int, kept: int) -> int:
        """Advance the log start to `start`; blocks below `kept` are deleted. Returns about how many bytes that
        frees."""
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

    def _fill_segment(self, append: PartitionAppend) -> None:
        row = self.row
        old = self._segment_ms is not None and append.appended - row.opened >= self._segment_ms
        if row.open_bytes >= self._segment_bytes or old:
            self._close_segment()
        row.opened = row.opened if row.open_bytes else append.appended
        row.last_append = max(row.last_append, append.appended)
        row.open_bytes += append.bytes

    def _close_segment(self) -> None:
        """The active segment becomes a closed one."""
        row = self.row
        if row.open_bytes:
            first = self.segments[-1].end if self.segments else row.start
            segment = Segment(row.end, row.open_bytes, row.last_append)
            self.segments.append(segment)
            self._unsaved.append((first, segment))
            row.open_bytes = 0


class PartitionAppend(NamedTuple):
    """The part of a transaction in one partition."""

    partition: Partition
    end: int
    records: int
    bytes: int
    appended: int
