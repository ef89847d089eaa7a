"""Removing what nobody needs any more from the start of a partition, on demand."""

from __future__ import annotations

from rocksdict import Rdict

from tidegate.logs.embedded.blocks import block_key, offset_of
from tidegate.logs.embedded.database import Changes
from tidegate.logs.embedded.group_commit import GroupCommit
from tidegate.logs.embedded.maintenance.reclaim import Reclaimer
from tidegate.logs.embedded.partition import Partition

__all__ = ("trim",)


async def trim(partition: Partition, start: int, database: Rdict, commits: GroupCommit, reclaimer: Reclaimer) -> None:
    """Nothing below `start` is read any more. Only whole blocks are removed: a part of one may stay."""
    if start <= partition.row.start:
        return
    kept = _first_kept(database, partition, min(start, partition.row.end))
    begin = partition.dropped_to
    removed = partition.trim(min(start, partition.row.end), kept)
    if kept <= begin:
        return
    partition.dropped_to = kept
    changes = Changes()
    for prefix in (partition.blocks, partition.segment_prefix):
        changes.delete_range(block_key(prefix, begin), block_key(prefix, kept))
    await commits.write_for(partition, changes)
    reclaimer.add(partition.blocks, removed)


def _first_kept(database: Rdict, partition: Partition, start: int) -> int:
    """The first offset of the block in which `start` lies."""
    iterator = database.iter()
    iterator.seek_for_prev(block_key(partition.blocks, start))
    if iterator.valid() and iterator.key().startswith(partition.blocks):
        return offset_of(iterator.key())
    iterator.status()
    return partition.dropped_to
