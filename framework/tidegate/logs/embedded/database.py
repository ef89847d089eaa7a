"""RocksDB as the log uses it: how it is opened, and what its errors mean."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct
from rocksdict import (
    AccessType,
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    Options,
    Rdict,
    WriteBatch,
    WriteOptions,
)

from tidegate.errors import LogError, LogFailedError, StorageFullError
from tidegate.logs.embedded.blocks import encode_row
from tidegate.logs.embedded.options import EmbeddedOptions

__all__ = ("Changes", "close_database", "is_stall", "no_stall", "open_beside", "open_database", "scan", "translated")

logger = logging.getLogger(__name__)


class Changes:
    """Changes to be written together. (A WriteBatch is used up by trying to write it, so it cannot be tried again.)"""

    def __init__(self) -> None:
        self._puts: list[tuple[bytes, bytes]] = []
        self._rows: list[tuple[bytes, Struct]] = []
        self._deletes: list[bytes] = []
        self._ranges: list[tuple[bytes, bytes]] = []

    def put(self, key: bytes, value: bytes) -> None:
        self._puts.append((key, value))

    def put_row(self, key: bytes, row: Struct) -> None:
        """The row is written as it is when it is written, not as it is now."""
        self._rows.append((key, row))

    def delete(self, key: bytes) -> None:
        """Removed before anything is put."""
        self._deletes.append(key)

    def delete_range(self, begin: bytes, end: bytes) -> None:
        """Removed before anything is put: from `begin` up to but not including `end`."""
        self._ranges.append((begin, end))

    def batch(self) -> WriteBatch:
        batch = WriteBatch(raw_mode=True)
        for begin, end in self._ranges:
            batch.delete_range(begin, end)
        for key in self._deletes:
            batch.delete(key)
        for key, value in self._puts:
            batch.put(key, value)
        for key, row in self._rows:
            batch.put(key, encode_row(row))
        return batch


def open_database(directory: Path, options: EmbeddedOptions) -> Rdict:
    """Open it for the owner, and make it if need be."""
    settings = _settings()
    settings.create_if_missing(True)
    settings.set_write_buffer_size(options.write_buffer_bytes)
    settings.set_max_write_buffer_number(4)
    settings.set_bytes_per_sync(1 << 20)
    settings.set_max_manifest_file_size(16 << 20)
    settings.set_max_open_files(512)
    settings.set_avoid_unnecessary_blocking_io(True)
    return _open(directory, settings, AccessType.read_write())


def open_beside(directory: Path, scratch: Path) -> Rdict:
    """Open it for an observer. All its files are kept open, since the owner may delete them at any time."""
    settings = _settings()
    settings.create_if_missing(False)
    settings.set_max_open_files(-1)
    return _open(directory, settings, AccessType.secondary(str(scratch)))


def _settings() -> Options:
    """Raw, always: otherwise rocksdict unpickles what it reads. Blocks are compressed before RocksDB sees them."""
    table = BlockBasedOptions()
    table.set_block_size(16 << 10)
    table.set_block_cache(Cache(8 << 20))
    settings = Options(raw_mode=True)
    settings.set_block_based_table_factory(table)
    settings.set_compression_type(DBCompressionType.none())
    settings.set_keep_log_file_num(2)
    settings.set_max_log_file_size(1 << 20)
    settings.set_stats_dump_period_sec(0)
    return settings


def _open(directory: Path, settings: Options, access: AccessType) -> Rdict:
    try:
        return Rdict(str(directory / "log"), settings, access_type=access)
    except Exception as error:
        raise translated(error, directory) from error


def close_database(database: Rdict) -> None:
    """RocksDB complains if it could not write something before; that was reported then. It is closed all the same."""
    try:
        database.close()
    except Exception:
        logger.warning("the log's database was closed with an error", exc_info=True)


def no_stall() -> WriteOptions:
    """rocksdict holds the GIL while it writes: a write that has to wait must fail instead, and be tried again."""
    options = WriteOptions()
    options.no_slowdown = True
    return options


def scan(database: Rdict, begin: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The rows from `begin` up to but not including `end`, in order, as they are now."""
    iterator = database.iter()
    iterator.seek(begin)
    while iterator.valid():
        key = iterator.key()
        if key >= end:
            return
        yield key, iterator.value()
        iterator.next()
    iterator.status()  # raises if it is an error that ended it


def is_stall(error: Exception) -> bool:
    return "Write stall" in str(error)


def translated(error: Exception, directory: Path) -> LogError:
    text = str(error)
    if "No space left on device" in text:
        return StorageFullError(directory, text)
    if "Permission denied" in text:
        text = f"{text.rstrip('.')}. Give this user access, or be the user whose worker it is."
    return LogFailedError(f"the log in {directory} failed: {text}")
