"""Retention: whole segments are dropped when they are too old, or when a partition is too large.

Age counts from when the log appended the records, not from their timestamps: replayed old events stay as long as new
ones do. (Kafka goes by the timestamps, and drops old events within a minute of their arrival.) Size counts as it is
stored, that is compressed.
"""

from __future__ import annotations

from tidegate.logs.embedded.blocks import block_key
from tidegate.logs.embedded.database import Changes
from tidegate.logs.embedded.group_commit import GroupCommit
from tidegate.logs.embedded.maintenance.reclaim import Reclaimer
from tidegate.logs.embedded.partition import Partition

__all__ = ("Retention",)


class Retention:
    def __init__(self, commits: GroupCommit, reclaimer: Reclaimer) -> None:
        self._commits = commits
        self._reclaimer = reclaimer

    async def expire(self, partition: Partition, now: int) -> None:
        """Drop the segments of this partition that need not be kept."""
        expired = partition.take_expired(now)
        if not expired:
            return
        changes = Changes()
        begin, partition.dropped_to = partition.dropped_to, partition.row.start
        for prefix in (partition.blocks, partition.segment_prefix):
            changes.delete_range(block_key(prefix, begin), block_key(prefix, partition.dropped_to))
        await self._commits.write_for(partition, changes)
        self._reclaimer.add(partition.blocks, sum(segment.bytes for segment in expired))
