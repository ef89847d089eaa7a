"""Fetches records from the blocks of a partition."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from rocksdict import Rdict, RdictIter

from tidegate.logs.embedded.blocks import block_key, decode_block, offset_of
from tidegate.logs.records import RecordColumns

__all__ = ("fetch",)

FETCH_BYTES: Final = 1 << 20
"""Stored bytes that one fetch reads from a partition, at most one block more."""


def fetch(database: Rdict, blocks: bytes, position: int, end: int, limit: int) -> tuple[RecordColumns, int]:
    """Records of the partition with this block prefix from `position` to `end`: whole blocks, until there are `limit`
    records or FETCH_BYTES. Returns them and the position after them.

    Each call creates an iterator, which costs a microsecond: one that is kept open would pin deleted files."""
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
        iterator.status()  # raises if an error ended the iteration
    return records, end


def _seek(iterator: RdictIter, blocks: bytes, position: int) -> RecordColumns:
    """Move to the first block after `position`; return the records from `position` on of the block that contains it."""
    target = block_key(blocks, position)
    iterator.seek(target)
    if iterator.valid() and iterator.key() == target:
        return RecordColumns.of(())
    iterator.seek_for_prev(target)
    if not iterator.valid() or not iterator.key().startswith(blocks):
        iterator.status()
        iterator.seek(target)
        return RecordColumns.of(())
    records = decode_block(iterator.value()).records
    iterator.next()
    return records[bisect_left(records.offsets, position) :]
