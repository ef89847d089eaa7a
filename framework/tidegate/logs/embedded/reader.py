"""Finding records in the blocks, from a position on."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from rocksdict import Rdict, RdictIter

from tidegate.logs.embedded.blocks import block_key, decode_block, offset_of
from tidegate.logs.records import Rows

__all__ = ("fetch",)

FETCH_BYTES: Final = 1 << 20
"""How much is fetched of a partition at a time, as it is stored."""


def fetch(database: Rdict, blocks: bytes, position: int, end: int, limit: int) -> tuple[Rows, int]:
    """Records of the partition with this prefix from `position` to `end`, whole blocks until there are `limit`, or
    enough bytes.

    An iterator is made for each call: it costs a microsecond, and one that is kept holds on to deleted files."""
    iterator = database.iter()
    records, size = _seek(iterator, blocks, position), 0
    while iterator.valid():
        key = iterator.key()
        if not key.startswith(blocks) or (base := offset_of(key)) >= end:
            break
        if len(records) >= limit or size >= FETCH_BYTES:
            return records, base
        packed = iterator.value()
        size += len(packed)
        found = decode_block(packed).records
        if len(records):
            records.extend(found)
        else:
            records = found
        iterator.next()
    else:
        iterator.status()  # raises if it is an error that ended it
    return records, end


def _seek(iterator: RdictIter, blocks: bytes, position: int) -> Rows:
    """Stand at the first block after `position`; return the records of the one that `position` lies inside, if any."""
    target = block_key(blocks, position)
    iterator.seek(target)
    if iterator.valid() and iterator.key() == target:
        return Rows.of(())
    iterator.seek_for_prev(target)
    if not iterator.valid() or not iterator.key().startswith(blocks):
        iterator.status()
        iterator.seek(target)
        return Rows.of(())
    records = decode_block(iterator.value()).records
    iterator.next()
    return records[bisect_left(records.offsets, position) :]
