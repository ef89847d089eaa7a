"""The store on disk: one RocksDB in its own directory.

The changelog serves as the write-ahead log, so RocksDB's is disabled: after a crash the store is at an earlier `apply`,
with data and position consistent, because both are in one batch and batches reach the disk in order.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from operator import itemgetter
from pathlib import Path
from threading import Lock
from typing import Final
from weakref import WeakSet

import msgspec
from rocksdict import (
    AccessType,
    BlockBasedOptions,
    Cache,
    Checkpoint,
    DbClosedError,
    DBCompressionType,
    Options,
    Rdict,
    RdictIter,
    ReadOptions,
    WriteBatch,
    WriteBufferManager,
    WriteOptions,
)

from tidegate.errors import StorageFullError, StoreCorruptError, StoreError
from tidegate.state.base import Change, StorePosition

__all__ = ("RocksOptions", "RocksStore")

_POSITION: Final = b"\x00position"
"""The key of the position. Keys that start with 00 belong to the store; the engine's start with a tag of 01 or more."""
_FIRST: Final = b"\x01"
_CORRUPT: Final = "CORRUPT"
"""The name of the file that marks a corrupt store."""
_by_key: Final = itemgetter(0)
_positions: Final = msgspec.json.Decoder(StorePosition)


@dataclass(frozen=True, kw_only=True, slots=True)
class RocksOptions:
    """Tuned for point reads and short scans of small values, with many stores in one process."""

    cache_bytes: int = 128 << 20
    """Block cache, shared by all stores of the process."""
    write_buffers_bytes: int = 64 << 20
    """Memtables of all stores of the process together; above it, a store that writes flushes early."""
    write_buffer_bytes: int = 8 << 20
    """Memtable of one store. Larger memtables make each write slower, since it searches them."""
    block_bytes: int = 4 << 10
    bloom_bits: int = 10
    """Per key; 10 bits avoid 99 of 100 reads of a missing key."""
    max_open_files: int = 64
    """Per store, so that many stores stay below the usual limit of a process."""
    background_jobs: int = 2
    """Threads that flush and compact, shared by all stores of the process."""


_DEFAULTS: Final = RocksOptions()


class RocksStore:
    def __init__(self, directory: Path, *, options: RocksOptions = _DEFAULTS, read_only: bool = False) -> None:
        """read_only: for snapshots; several processes can open one directory, and nothing in it changes."""
        self._directory = directory
        self._options = options
        self._read_only = read_only
        self._closing = Lock()  # a flush runs in another thread, and must end before the files are closed
        self._closed = False
        self._cursors: WeakSet[_Cursor] = WeakSet()
        self._db = _open_read_only(directory, options) if read_only else _open(directory, options)
        try:
            self._position = self._read_position()
        except StoreError:
            self._release()
            raise

    @staticmethod
    def destroy(directory: Path) -> None:
        """Remove a store that is not open, damaged or not."""
        if directory.exists():
            shutil.rmtree(directory)

    @property
    def position(self) -> StorePosition | None:
        return self._position

    def get(self, key: bytes) -> bytes | None:
        try:
            return self._db.get(key)
        except Exception as error:
            raise _failure(error, self._directory) from error

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        if self._position is None:  # the store is empty: a new service needs no lookup per key
            return [None] * len(keys)
        try:
            return self._db.get([*keys])  # type: ignore[return-value]  # the stub has single keys only
        except Exception as error:
            raise _failure(error, self._directory) from error

    def scan(self, start: bytes, end: bytes, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        start = max(start, _FIRST)
        if start >= end:
            return iter(())
        bounds = ReadOptions()
        bounds.set_iterate_upper_bound(end)
        try:
            iterator = self._db.iter(bounds)
            if reverse:
                iterator.seek_to_last()
            else:
                iterator.seek(start)
        except Exception as error:
            raise _failure(error, self._directory) from error
        cursor = _Cursor(iterator, bounds, self._directory, down_to=start if reverse else None)
        self._cursors.add(cursor)
        return cursor.pairs()

    def approximate_entries(self) -> int:
        """Overwritten entries count twice until they are compacted."""
        return self._db.property_int_value("rocksdb.estimate-num-keys") or 0

    def apply(self, changes: Iterable[Change], position: StorePosition) -> None:
        ordered = sorted(changes, key=_by_key)  # a sorted write takes half the time
        if ordered and ordered[0][0] < _FIRST:
            raise ValueError(f"{ordered[0][0]!r} is not the key of an entry: these start with a byte of 01 or more")
        batch = WriteBatch(raw_mode=True)
        put, delete = batch.put, batch.delete
        for key, value in ordered:
            if value is not None:
                put(key, value)
            else:
                delete(key)
        put(_POSITION, msgspec.json.encode(position))
        try:
            self._db.write(batch)
        except Exception as error:
            raise _failure(error, self._directory) from error
        self._position = position

    def flush(self) -> None:
        with self._closing:
            self._flush()

    def snapshot(self, directory: Path) -> None:
        """Hard links to the files, which never change. Flushes before: a RocksDB checkpoint that has to flush blocks
        all Python threads."""
        directory.parent.mkdir(parents=True, exist_ok=True)
        with self._closing:
            self._flush()
            try:
                Checkpoint(self._db).create_checkpoint(str(directory))
            except Exception as error:
                raise _failure(error, self._directory) from error

    def wipe(self) -> None:
        with self._closing:
            self._release()
            self.destroy(self._directory)
            self._db = _open(self._directory, self._options)
            self._position = None

    def close(self) -> None:
        """Closes the files even if the flush fails: its changes are in the changelog."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
            try:
                if not self._read_only:
                    self._flush()
            finally:
                self._release()

    def _flush(self) -> None:
        try:
            self._db.flush()
        except Exception as error:
            raise _failure(error, self._directory) from error

    def _release(self) -> None:
        """Close the files. Open iterators would keep them open, and locked."""
        for cursor in list(self._cursors):
            cursor.release()
        with suppress(Exception):  # close flushes again; our own flush has raised its errors
            self._db.close()

    def _read_position(self) -> StorePosition | None:
        raw = self.get(_POSITION)
        try:
            return None if raw is None else _positions.decode(raw)
        except ValueError as error:
            raise StoreCorruptError(self._directory, f"its position cannot be read: {error}") from error


class _Cursor:
    """An iterator of RocksDB, which is a snapshot, until the store closes."""

    def __init__(self, iterator: RdictIter, bounds: ReadOptions, directory: Path, *, down_to: bytes | None) -> None:
        """`down_to`: iterate in reverse down to this key. rocksdict treats a lower bound as an upper bound, so it
        cannot be used for that."""
        self._iterator: RdictIter | None = iterator
        self._down_to = down_to
        self._bounds = bounds  # keeps it alive: the iterator points into its memory
        self._directory = directory

    def release(self) -> None:
        self._iterator = None

    def pairs(self) -> Iterator[tuple[bytes, bytes]]:
        size = 8
        while chunk := self._take(size):
            yield from chunk
            size = min(2 * size, 512)

    def _take(self, size: int) -> list[tuple[bytes, bytes]]:
        iterator = self._iterator
        if iterator is None:
            raise StoreError(f"the store in {self._directory} was closed during a scan")
        chunk: list[tuple[bytes, bytes]] = []
        while len(chunk) < size and iterator.valid():
            key = iterator.key()
            if self._down_to is None:
                chunk.append((key, iterator.value()))
                iterator.next()
            elif key >= self._down_to:
                chunk.append((key, iterator.value()))
                iterator.prev()
            else:
                break
        if not chunk:
            self._finish(iterator)
        return chunk

    def _finish(self, iterator: RdictIter) -> None:
        """An iterator ends at an unreadable block as at the end of the data: only its status has the error."""
        try:
            iterator.status()
        except Exception as error:
            raise _failure(error, self._directory) from error
        finally:
            self.release()


# ---------------------------------------------------------------------------------------------------------- opening


def _open(directory: Path, options: RocksOptions) -> Rdict:
    if (directory / _CORRUPT).exists():
        raise StoreCorruptError(directory, (directory / _CORRUPT).read_text())
    if not (directory / "CURRENT").exists() and any(directory.glob("*.sst")):
        raise StoreCorruptError(directory, "CURRENT is missing")  # RocksDB would create an empty database
    directory.mkdir(parents=True, exist_ok=True)
    rocks = _rocksdb_options(options)
    try:
        # Passed twice: otherwise rocksdict opens an existing database with its stored options, without cache and
        # filters.
        db = Rdict(str(directory), rocks, {"default": rocks})
    except Exception as error:
        raise _translated(error, directory) from error
    unlogged = WriteOptions()
    unlogged.disable_wal = True  # type: ignore[method-assign, assignment]  # a property, unlike in the stub
    db.set_write_options(unlogged)
    return db


def _open_read_only(directory: Path, options: RocksOptions) -> Rdict:
    if not (directory / "CURRENT").exists():
        raise StoreCorruptError(directory, "CURRENT is missing")
    rocks = _rocksdb_options(options)
    try:
        return Rdict(str(directory), rocks, {"default": rocks}, access_type=AccessType.read_only())
    except Exception as error:
        raise _translated(error, directory) from error


@cache
def _shared(cache_bytes: int, write_buffers_bytes: int) -> tuple[Cache, WriteBufferManager]:
    return Cache(cache_bytes), WriteBufferManager(write_buffers_bytes, allow_stall=False)


def _rocksdb_options(options: RocksOptions) -> Options:
    blocks, buffers = _shared(options.cache_bytes, options.write_buffers_bytes)
    rocks = Options(raw_mode=True)  # otherwise rocksdict unpickles values
    rocks.create_if_missing(True)
    rocks.set_block_based_table_factory(_table_options(options, blocks))
    rocks.set_compression_type(DBCompressionType.lz4())  # zstd halves the files, and doubles the time of a cold read
    rocks.set_level_compaction_dynamic_level_bytes(True)
    rocks.set_max_bytes_for_level_base(64 << 20)
    rocks.set_target_file_size_base(32 << 20)
    # Compaction rewrites a small store as a whole, and the next checkpoint then uploads it as a whole. With 1 % of the
    # keys changing between checkpoints, that is 27 % of the bytes at RocksDB's default of 4, and 10 % at 12.
    rocks.set_level_zero_file_num_compaction_trigger(12)
    rocks.set_max_background_jobs(options.background_jobs)
    rocks.set_write_buffer_manager(buffers)
    rocks.set_write_buffer_size(options.write_buffer_bytes)
    rocks.set_max_write_buffer_number(4)
    # Most reads are of keys that have not changed recently: a filter of 40 kB avoids the search in the memtable.
    rocks.set_memtable_whole_key_filtering(True)
    rocks.set_memtable_prefix_bloom_ratio(0.005)
    rocks.set_allow_concurrent_memtable_write(False)  # there is one writer
    # Allocations of a nearly empty store: with the defaults, 64 stores would exceed the budget.
    rocks.set_arena_block_size(64 << 10)
    rocks.set_manifest_preallocation_size(64 << 10)
    rocks.set_max_open_files(options.max_open_files)
    rocks.set_keep_log_file_num(1)
    rocks.set_max_log_file_size(1 << 20)
    rocks.set_stats_dump_period_sec(0)
    rocks.set_stats_persist_period_sec(0)
    return rocks


def _table_options(options: RocksOptions, blocks: Cache) -> BlockBasedOptions:
    """Index and filter blocks stay in memory outside of the cache while their file is open: about two bytes per key. In
    the cache, a read would look up four blocks instead of one (measured: 6.7 µs against 3.8)."""
    table = BlockBasedOptions()
    table.set_block_cache(blocks)
    table.set_block_size(options.block_bytes)
    table.set_format_version(5)
    table.set_bloom_filter(options.bloom_bits, False)
    return table


_NOT_THE_STORE: Final = ("/LOCK:", "Permission denied", "Too many open files", "Read-only file", "allocate memory")


def _failure(error: Exception, directory: Path) -> Exception:
    """Translates an error of an open store. Opening does not detect all damage, so a corrupt store is marked: the next
    open, even after a crash, fails at once and the store is rebuilt."""
    meaning = _translated(error, directory)
    if isinstance(meaning, StoreCorruptError):
        with suppress(OSError):
            (directory / _CORRUPT).write_text(meaning.detail)
    return meaning


def _translated(error: Exception, directory: Path) -> Exception:
    """Translates RocksDB's error: the environment is at fault, or the store is corrupt and must be rebuilt.

    In doubt the store is corrupt: an unnecessary rebuild costs time, a damaged store costs data.
    """
    detail = str(error)
    if isinstance(error, DbClosedError):
        return StoreError(f"the store in {directory} is closed")
    if type(error) is not Exception:
        raise error  # not from RocksDB, for example a key that is not bytes
    if "No space left" in detail:
        return StorageFullError(directory, detail)
    if any(sign in detail for sign in _NOT_THE_STORE) and not detail.startswith("Corruption"):
        return StoreError(f"the store in {directory} cannot be used: {detail}")
    return StoreCorruptError(directory, detail)
