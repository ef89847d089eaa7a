"""Tuning options of the embedded log. The defaults are measured; most users need not change them."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ("EmbeddedOptions",)


@dataclass(frozen=True, kw_only=True)
class EmbeddedOptions:
    """Sizes and thresholds of an embedded log. All may change between two starts."""

    max_record_bytes: int = 8 << 20
    """A larger record is refused with RecordTooLargeError."""
    block_records: int = 500
    """Largest number of records in a block, the unit of writing and reading."""
    block_bytes: int = 256 << 10
    """Largest encoded size of a block; a larger record gets a block of its own."""
    write_buffer_bytes: int = 16 << 20
    """Size of a RocksDB memtable before it is flushed to a file. There are up to four."""
    segment_bytes: int = 4 << 20
    """Largest size of a segment, the unit of retention."""
    clean_records: int = 250_000
    """A compacted partition is cleaned when it has this many dirty records and half as many as clean ones: about what
    is replayed in half a second;"""
    clean_bytes: int = 32 << 20
    """or this many dirty bytes, and half as many as clean ones."""
    clean_keys: int = 200_000
    """Keys that the cleaner keeps in memory per pass, about 130 bytes each. Fewer keys need more passes."""
    clean_step: int = 1500
    """Records that the cleaner processes before it yields to the event loop: about 2 ms."""
    reclaim_bytes: int = 64 << 20
    """Deleted space is reclaimed when it reaches this size and the size of the space in use."""
    maintenance_interval: float = 1.0
    """Seconds between runs of retention and compaction."""
