"""Head trimming: deletes the consumed start of a partition on request (Kafka's DeleteRecords)."""

from __future__ import annotations

from rocksdict import Rdict

from tidegate.logs.embedded.blocks import block_key, offset_of
from tidegate.logs.embedded.database import Changes
from tidegate.logs.embedded.group_commit import GroupCommit
from tidegate.logs.embedded.maintenance.reclaim import Reclaimer
from tidegate.logs.embedded.partition import Partition

__all__ = ("trim",)


async def trim(partition: Partition, start: int, database: Rdict, commits: GroupCommit, reclaimer: Reclaimer) -> None:
    """Advances the log start to `start`, and deletes the blocks that are entirely below it."""
    if start <= partition.row.start:
        return
    kept = _first_kept(database, partition, min(start, partition.row.end))
    begin = partition.deleted_to
    removed = partition.trim(min(start, partition.row.end), kept)
    if kept <= begin:
        return
    partition.deleted_to = kept
    changes = Changes()
    for prefix in (partition.block_prefix, partition.segment_prefix):
        changes.delete_range(block_key(prefix, begin), block_key(prefix, kept))
    await commits.write_partition(partition, changes)
    reclaimer.add(partition.block_prefix, removed)


def _first_kept(database: Rdict, partition: Partition, start: int) -> int:
    """The first offset of the block that contains `start`."""
    iterator = database.iter()
    iterator.seek_for_prev(block_key(partition.block_prefix, start))
    if iterator.valid() and iterator.key().startswith(partition.block_prefix):
        return offset_of(iterator.key())
    iterator.status()
    return partition.deleted_to
