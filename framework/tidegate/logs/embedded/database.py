"""The log's RocksDB: opening it, atomic changes, translation of its errors."""

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

__all__ = (
    "Changes",
    "close_database",
    "is_stall",
    "no_slowdown",
    "open_database",
    "open_secondary",
    "scan",
    "to_log_error",
)

logger = logging.getLogger(__name__)


class Changes:
    """Changes to be written atomically. A WriteBatch cannot be written again after a failed attempt, so it is built
    from these for each attempt."""

    def __init__(self) -> None:
        self._puts: list[tuple[bytes, bytes]] = []
        self._rows: list[tuple[bytes, Struct]] = []
        self._deletes: list[bytes] = []
        self._ranges: list[tuple[bytes, bytes]] = []

    def put(self, key: bytes, value: bytes) -> None:
        self._puts.append((key, value))

    def put_row(self, key: bytes, row: Struct) -> None:
        """The row is encoded at the time of the write, not now."""
        self._rows.append((key, row))

    def delete(self, key: bytes) -> None:
        """Deletes take effect before puts."""
        self._deletes.append(key)

    def delete_range(self, begin: bytes, end: bytes) -> None:
        """Deletes the keys from `begin` up to but not including `end`, before puts take effect."""
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
    """Open the database for the owner of the log; create it if it does not exist."""
    settings = _settings()
    settings.create_if_missing(True)
    settings.set_write_buffer_size(options.write_buffer_bytes)
    settings.set_max_write_buffer_number(4)
    settings.set_bytes_per_sync(1 << 20)
    settings.set_max_manifest_file_size(16 << 20)
    settings.set_max_open_files(512)
    settings.set_avoid_unnecessary_blocking_io(True)
    return _open(directory, settings, AccessType.read_write())


def open_secondary(directory: Path, scratch: Path) -> Rdict:
    """Open the database for an observer, as a RocksDB secondary instance. It keeps all files open, since the owner may
    delete them at any time."""
    settings = _settings()
    settings.create_if_missing(False)
    settings.set_max_open_files(-1)
    return _open(directory, settings, AccessType.secondary(str(scratch)))


def _settings() -> Options:
    """Always in raw mode: otherwise rocksdict unpickles the values. Blocks are already compressed."""
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
        raise to_log_error(error, directory) from error


def close_database(database: Rdict) -> None:
    """RocksDB raises on close if an earlier write failed, which was reported then. The database is closed anyway."""
    try:
        database.close()
    except Exception:
        logger.warning("the log's database was closed with an error", exc_info=True)


def no_slowdown() -> WriteOptions:
    """rocksdict holds the GIL while it writes: a write that would stall fails instead, and is retried."""
    options = WriteOptions()
    options.no_slowdown = True
    return options


def scan(database: Rdict, begin: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
    """A snapshot of the rows from `begin` up to but not including `end`, in order."""
    iterator = database.iter()
    iterator.seek(begin)
    while iterator.valid():
        key = iterator.key()
        if key >= end:
            return
        yield key, iterator.value()
        iterator.next()
    iterator.status()  # raises if an error ended the iteration


def is_stall(error: Exception) -> bool:
    return "Write stall" in str(error)


def to_log_error(error: Exception, directory: Path) -> LogError:
    text = str(error)
    if "No space left on device" in text:
        return StorageFullError(directory, text)
    if "Permission denied" in text:
        text = f"{text.rstrip('.')}. Give this user access, or run the command as the user who runs the worker."
    return LogFailedError(f"the log in {directory} failed: {text}")
