"""RocksDB as the log uses it: how it is opened, and what its errors mean."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rocksdict import DBCompressionType, Options, Rdict, WriteOptions

from tidegate.errors import LogError, LogUnavailableError, StorageFullError
from tidegate.logs.embedded.options import EmbeddedOptions

__all__ = ("no_stall", "open_database", "scan", "translated")


def open_database(directory: Path, options: EmbeddedOptions) -> Rdict:
    settings = Options(raw_mode=True)
    settings.create_if_missing(True)
    settings.set_write_buffer_size(options.write_buffer_bytes)
    settings.set_max_write_buffer_number(4)
    settings.set_compression_type(DBCompressionType.lz4())
    settings.set_keep_log_file_num(2)
    settings.set_max_log_file_size(1 << 20)
    try:
        return Rdict(str(directory / "log"), settings)
    except Exception as error:
        raise translated(error, directory) from error


def no_stall() -> WriteOptions:
    """rocksdict holds the GIL while it writes: a write that has to wait must fail instead, and be tried again."""
    options = WriteOptions()
    options.no_slowdown = True
    return options


def scan(database: Rdict, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The rows whose keys start with `prefix`, in order, as they are now."""
    iterator = database.iter()
    iterator.seek(prefix)
    while iterator.valid():
        key = iterator.key()
        if not key.startswith(prefix):
            return
        yield key, iterator.value()
        iterator.next()


def translated(error: Exception, directory: Path) -> LogError:
    text = str(error)
    if "No space left on device" in text:
        return StorageFullError(directory, text)
    return LogUnavailableError(f"the log in {directory} failed: {text}")
