"""A store on disk: one RocksDB in a directory of its own.

The changelog is the write-ahead log, so RocksDB's own is off: after a crash the store is as it was at some earlier
`apply`, data and position alike, because both are in one batch and batches reach the disk in order.
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
"""Where the position is kept. What begins with 00 is ours; the keys of the engine begin with a tag of 01 or more."""
_FIRST: Final = b"\x01"
_CORRUPT: Final = "CORRUPT"
"""A file that says that the store is beyond use."""
_by_key: Final = itemgetter(0)
_positions: Final = msgspec.json.Decoder(StorePosition)


@dataclass(frozen=True, kw_only=True, slots=True)
class RocksOptions:
    """Tuned for point reads and short scans of small values, with many stores in one process."""

    cache_bytes: int = 128 << 20
    """Blocks kept in memory, in all stores of the process together."""
    write_buffers_bytes: int = 64 << 20
    """Changes not yet on disk, in all stores of the process together; past it, a store that writes flushes early."""
    write_buffer_bytes: int = 8 << 20
    """Changes not yet on disk in one store. Larger ones make each write slower: it searches them."""
    block_bytes: int = 4 << 10
    bloom_bits: int = 10
    """Per key; 10 spare 99 of 100 reads of a key that is not there."""
    max_open_files: int = 64
    """Per store, so that many stores stay below the usual limit of a process."""
    background_jobs: int = 2
    """Threads that flush and compact, for all stores of the process together."""


_DEFAULTS: Final = RocksOptions()


class RocksStore:
    def __init__(self, directory: Path, *, options: RocksOptions = _DEFAULTS, read_only: bool = False) -> None:
        """read_only: for snapshots; several may look at one directory, and nothing in it changes."""
        self._directory = directory
        self._options = options
        self._read_only = read_only
        self._closing = Lock()  # a flush runs in another thread, and must end before the files are let go
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
        """Remove a store that is not open, in whatever state it is."""
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
        if self._position is None:  # nothing was ever applied: a service that begins need not ask for each new key
            return [None] * len(keys)
        try:
            return self._db.get([*keys])  # type: ignore[return-value]  # its stub knows of single keys only
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
        """What was overwritten and is not compacted yet counts twice."""
        return self._db.property_int_value("rocksdb.estimate-num-keys") or 0

    def apply(self, changes: Iterable[Change], position: StorePosition) -> None:
        ordered = sorted(changes, key=_by_key)  # in order, the write itself takes half the time
        if ordered and ordered[0][0] < _FIRST:
            raise ValueError(f"{ordered[0][0]!r} is not the key of an entry: those begin with a byte of 01 or more")
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
        """Hard links to the files: they never change. What is in memory is flushed before, because a checkpoint that
        finds something to flush holds every thread of Python up."""
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
        """Let go of the files, even if the flush fails: what it would have written is in the changelog."""
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
        """Let go of the files. Open iterators would keep them open, and locked."""
        for cursor in list(self._cursors):
            cursor.release()
        with suppress(Exception):  # it flushes before it closes; what that could say, our own flush has said
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
        """`down_to`: it goes backwards, to this key. Not by a lower bound: rocksdict takes that for an upper one."""
        self._iterator: RdictIter | None = iterator
        self._down_to = down_to
        self._bounds = bounds  # held, because the iterator points into it: freed, its end would be any bytes
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
        """At a block that cannot be read, an iterator ends as it does at the end: only its status tells."""
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
        raise StoreCorruptError(directory, "CURRENT is missing")  # RocksDB would begin an empty one
    directory.mkdir(parents=True, exist_ok=True)
    rocks = _rocksdb_options(options)
    try:
        # Named twice: otherwise rocksdict opens what exists with the options it finds there, without cache and filters.
        db = Rdict(str(directory), rocks, {"default": rocks})
    except Exception as error:
        raise _translated(error, directory) from error
    unlogged = WriteOptions()
    unlogged.disable_wal = True  # type: ignore[method-assign, assignment]  # a property, whatever its stub says
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
    rocks = Options(raw_mode=True)  # otherwise rocksdict unpickles what it reads
    rocks.create_if_missing(True)
    rocks.set_block_based_table_factory(_table_options(options, blocks))
    rocks.set_compression_type(DBCompressionType.lz4())  # zstd halves the files, and doubles the time of a cold read
    rocks.set_level_compaction_dynamic_level_bytes(True)
    rocks.set_max_bytes_for_level_base(64 << 20)
    rocks.set_target_file_size_base(32 << 20)
    # A small store is rewritten as a whole when its newest files are merged into it, and then uploaded as a whole with
    # the next checkpoint. With 1 % of the keys changing between checkpoints, that is 27 % of the bytes at RocksDB's 4,
    # and 10 % at 12.
    rocks.set_level_zero_file_num_compaction_trigger(12)
    rocks.set_max_background_jobs(options.background_jobs)
    rocks.set_write_buffer_manager(buffers)
    rocks.set_write_buffer_size(options.write_buffer_bytes)
    rocks.set_max_write_buffer_number(4)
    # Most reads are of keys that did not change lately: a filter, 40 kB, spares them the search in the buffer.
    rocks.set_memtable_whole_key_filtering(True)
    rocks.set_memtable_prefix_bloom_ratio(0.005)
    rocks.set_allow_concurrent_memtable_write(False)  # there is one writer
    # What is allocated for a store that holds next to nothing: the defaults, for 64 of them, are over the budget.
    rocks.set_arena_block_size(64 << 10)
    rocks.set_manifest_preallocation_size(64 << 10)
    rocks.set_max_open_files(options.max_open_files)
    rocks.set_keep_log_file_num(1)
    rocks.set_max_log_file_size(1 << 20)
    rocks.set_stats_dump_period_sec(0)
    rocks.set_stats_persist_period_sec(0)
    return rocks


def _table_options(options: RocksOptions, blocks: Cache) -> BlockBasedOptions:
    """Index and filters stay in memory as long as their file is open, outside of the cache: about two bytes a key. In
    the cache a read would look up four blocks instead of one (measured: 6.7 µs against 3.8)."""
    table = BlockBasedOptions()
    table.set_block_cache(blocks)
    table.set_block_size(options.block_bytes)
    table.set_format_version(5)
    table.set_bloom_filter(options.bloom_bits, False)
    return table


_NOT_THE_STORE: Final = ("/LOCK:", "Permission denied", "Too many open files", "Read-only file", "allocate memory")


def _failure(error: Exception, directory: Path) -> Exception:
    """What an error of an open store means. Damage may lie where opening does not look: a store that has shown any is
    marked, so that whoever opens it next, even after a crash, does not run into it again."""
    meaning = _translated(error, directory)
    if isinstance(meaning, StoreCorruptError):
        with suppress(OSError):
            (directory / _CORRUPT).write_text(meaning.detail)
    return meaning


def _translated(error: Exception, directory: Path) -> Exception:
    """What RocksDB's error means for the engine: the place is unfit, or the store is and must be rebuilt.

    In doubt it is the store: to rebuild one for nothing costs time, to serve a broken one costs data.
    """
    detail = str(error)
    if isinstance(error, DbClosedError):
        return StoreError(f"the store in {directory} is closed")
    if type(error) is not Exception:
        raise error  # not RocksDB's: a key that is not bytes, for example
    if "No space left" in detail:
        return StorageFullError(directory, detail)
    if any(sign in detail for sign in _NOT_THE_STORE) and not detail.startswith("Corruption"):
        return StoreError(f"the store in {directory} cannot be used: {detail}")
    return StoreCorruptError(directory, detail)
