"""What can be tuned in the embedded log. The defaults are measured; most users never touch them."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ("EmbeddedOptions",)


@dataclass(frozen=True, kw_only=True)
class EmbeddedOptions:
    """Sizes and thresholds of an embedded log. All of them may change from one start to the next."""

    max_record_bytes: int = 8 << 20
    """A larger record is refused with RecordTooLargeError."""
    block_records: int = 500
    """How many records are stored, and read, together at most."""
    block_bytes: int = 256 << 10
    """How large such a block gets; a larger record has a block of its own."""
    write_buffer_bytes: int = 16 << 20
    """How much is collected in memory before RocksDB writes a file. There are up to four such buffers."""
    segment_bytes: int = 4 << 20
    """How much of a partition retention drops at a time, at most."""
    clean_records: int = 250_000
    """A compacted partition is cleaned when so many records were appended, and half as many as it has clean ones: about
    what is replayed in half a second;"""
    clean_bytes: int = 32 << 20
    """or so many bytes, and half as many as it has clean ones."""
    clean_keys: int = 200_000
    """How many keys the cleaner keeps in memory, about 130 bytes each. With fewer it takes more passes."""
    clean_step: int = 1500
    """How many records the cleaner looks at before it lets the event loop turn: about 2 ms."""
    reclaim_bytes: int = 64 << 20
    """Space that nothing uses any more is given back when there is this much of it, and as much as is in use."""
    maintenance_interval: float = 1.0
    """How often retention and compaction are looked after, in seconds."""
