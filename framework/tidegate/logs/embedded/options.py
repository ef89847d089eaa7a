"""What can be tuned in the embedded log. The defaults are measured; most users never touch them."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ("EmbeddedOptions",)


@dataclass(frozen=True, kw_only=True)
class EmbeddedOptions:
    max_record_bytes: int = 8 << 20
    """A larger record is refused with RecordTooLargeError."""
    block_records: int = 500
    """How many records are stored, and read, together at most."""
    block_bytes: int = 256 << 10
    """How large such a block gets; a larger record has a block of its own."""
    write_buffer_bytes: int = 16 << 20
    """How much is collected in memory before RocksDB writes a file. There are up to four such buffers."""
