"""Retention: deletes whole segments that are too old, or that make a partition too large.

Age counts from the time of the append, not from the records' timestamps: replayed old events are kept as long as new
ones. (Kafka uses the timestamps, and may delete old events within a minute of their arrival.) Size is the stored, that
is compressed, size.
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
        """Delete the expired segments of a partition."""
        expired = partition.take_expired(now)
        if not expired:
            return
        changes = Changes()
        begin, partition.deleted_to = partition.deleted_to, partition.row.start
        for prefix in (partition.block_prefix, partition.segment_prefix):
            changes.delete_range(block_key(prefix, begin), block_key(prefix, partition.deleted_to))
        await self._commits.write_partition(partition, changes)
        self._reclaimer.add(partition.block_prefix, sum(segment.bytes for segment in expired))
