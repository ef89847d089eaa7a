"""Retention: whole segments are dropped when they are too old, or when a partition is too large.

Age counts from when the log appended the records, not from their timestamps: replayed old events stay as long as new
ones do. (Kafka goes by the timestamps, and drops old events within a minute of their arrival.)
"""

from __future__ import annotations

from tidegate.logs.embedded.blocks import Segment, block_key
from tidegate.logs.embedded.commit import GroupCommit
from tidegate.logs.embedded.database import Changes
from tidegate.logs.embedded.partition import Partition
from tidegate.logs.embedded.reclaim import Reclaimer

__all__ = ("Retention",)


class Retention:
    def __init__(self, commits: GroupCommit, reclaimer: Reclaimer) -> None:
        self._commits = commits
        self._reclaimer = reclaimer

    async def expire(self, partition: Partition, now: int) -> None:
        """Drop the segments of this partition that need not be kept."""
        dropped = self._take_expired(partition, now)
        if not dropped:
            return
        row, changes = partition.row, Changes()
        size = sum(segment.bytes for segment in dropped)
        row.start, row.bytes = dropped[-1].end, row.bytes - size
        for prefix in (partition.blocks, partition.segment_prefix):
            changes.delete_range(block_key(prefix, 0), block_key(prefix, row.start))
        await self._commits.write_for(partition, changes)
        self._reclaimer.add(partition.blocks, size)

    def _take_expired(self, partition: Partition, now: int) -> list[Segment]:
        """Without a write in between: nothing of them is read any more from here on."""
        spec, row = partition.spec, partition.row
        oldest = None if spec.retention_ms is None else now - spec.retention_ms
        over = 0 if spec.retention_bytes is None else row.bytes - spec.retention_bytes
        if oldest is not None and row.open_bytes and row.touched <= oldest:
            partition.seal(full=True)
        dropped: list[Segment] = []
        for segment in partition.segments:
            if over < segment.bytes and (oldest is None or segment.touched > oldest):
                break
            over -= segment.bytes
            dropped.append(segment)
        for _ in dropped:
            partition.segments.popleft()
        return dropped
