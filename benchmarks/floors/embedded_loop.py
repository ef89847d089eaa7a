"""The lower bound of W in Python with Tidegate's libraries: a floor to compare with, not a design.

Blocks of records are read from RocksDB, decoded, handed to the same handler one by one, and every 200 ms outputs and
changes are written and synced together, then kept for a store that gets them many at a time. Everything that
makes a framework is missing: recovery, positions, failing or suspended handlers, timers, event time, epochs, state
larger than memory, other kinds of state.

python -m benchmarks.floors.embedded_loop EVENTS KEYS      prints a line of JSON
"""

from __future__ import annotations

import gc
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from typing import Any

import msgspec
import orjson
from cramjam import lz4
from msgspec import Struct
from rocksdict import Options, Rdict, WriteBatch, WriteOptions

from benchmarks.workloads.events import Count, Like, likes_of
from tidegate.keys import key_hash, partition_of

__all__ = ("floor",)

_TASKS = 4
_BLOCK = 500
_COMMIT_SECONDS = 0.2
_STORE_FROM = 25_000
_STAMP = (("tidegate", b"bench|run|counter.0|0"),)


class RecordColumns(Struct, array_like=True, gc=False):
    """Records as columns."""

    keys: list[bytes]
    values: list[bytes]
    times: list[int]


class Entry(Struct, eq=False, gc=False):
    key: bytes
    place: bytes
    value: int
    dirty: bool


pack = msgspec.msgpack.Encoder().encode
unpack = msgspec.msgpack.Decoder(RecordColumns).decode
decode = msgspec.json.Decoder(Like).decode
encode = msgspec.json.Encoder().encode


class State:
    __slots__ = ("value",)

    value: int


class Context:
    __slots__ = ("emitted", "key", "timestamp")

    def __init__(self) -> None:
        self.emitted: list[Any] = []
        self.key, self.timestamp = b"", 0

    def emit(self, value: Count) -> None:
        self.emitted.append((self.key, encode(value), self.timestamp, _STAMP))


async def counter(ctx: Context, like: Like, seen: State) -> None:
    seen.value += 1
    if seen.value % 2 == 0:
        ctx.emit(Count(like.liked, seen.value))


class Task:
    def __init__(self, number: int, log: Rdict, store: Rdict) -> None:
        self._number, self._log, self._store = number, log, store
        self._context, self._state = Context(), State()
        self._entries: dict[bytes, Entry] = {}
        self._dirty: list[Entry] = []
        self._fresh: dict[bytes, bytes] = {}
        self._blocks = 0

    async def handle(self, rows: RecordColumns) -> None:
        context, state, dirty = self._context, self._state, self._dirty
        for key, value, timestamp, entry in zip(rows.keys, rows.values, rows.times, self._find(rows.keys), strict=True):
            context.key, context.timestamp = key, timestamp
            before = state.value = entry.value
            await counter(context, decode(value), state)
            after = state.value
            if after is not before:
                entry.value = after
                if not entry.dirty:
                    entry.dirty = True
                    dirty.append(entry)

    def _find(self, keys: list[bytes]) -> list[Entry]:
        known = self._entries
        missing = [key for key in dict.fromkeys(keys) if key not in known]
        places = [b"s\x00%c%b\x00\x01" % (key_hash(key) % 128, key) for key in missing]
        found: list[bytes | None] = self._store.get(places) if places else []  # type: ignore[arg-type, assignment]
        for key, place, stored in zip(missing, places, found, strict=True):
            known[key] = Entry(key, place, 0 if stored is None else int(stored), False)
        return [known[key] for key in keys]

    def commit(self) -> None:
        dirty, self._dirty = self._dirty, []
        outputs, self._context.emitted = self._context.emitted, []
        values, places = [encode(entry.value) for entry in dirty], [entry.place for entry in dirty]
        for entry in dirty:
            entry.dirty = False
        batch = WriteBatch(raw_mode=True)
        for start in range(0, len(outputs), _BLOCK):
            self._put(batch, outputs[start : start + _BLOCK])
        for start in range(0, len(values), _BLOCK):
            self._put(batch, (places[start : start + _BLOCK], values[start : start + _BLOCK]))
        self._log.write(batch)
        self._log.flush_wal(True)
        self._fresh.update(zip(places, values, strict=True))
        if len(self._fresh) >= _STORE_FROM:
            self._pass_on()

    def _put(self, batch: WriteBatch, block: Any) -> None:
        batch.put(b"o%d-%09d" % (self._number, self._blocks), bytes(lz4.compress_block(pack(block))))
        self._blocks += 1

    def _pass_on(self) -> None:
        unlogged = WriteOptions()
        unlogged.disable_wal = True  # type: ignore[method-assign, assignment]  # its stub takes it for a method
        batch = WriteBatch(raw_mode=True)
        for place, value in self._fresh.items():
            batch.put(place, value)
        self._store.write(batch, unlogged)
        self._fresh = {}


def fill(log: Rdict, events: int, keys: int) -> list[int]:
    """Returns the number of blocks per partition."""
    waiting = [RecordColumns([], [], []) for _ in range(_TASKS)]
    counts = [0] * _TASKS
    for key, value, at in likes_of(events, keys):
        number = partition_of(key, _TASKS)
        rows = waiting[number]
        rows.keys.append(key)
        rows.values.append(value)
        rows.times.append(at)
        if len(rows.keys) == _BLOCK:
            log[_place(number, counts[number])] = bytes(lz4.compress_block(pack(rows)))
            counts[number] += 1
            waiting[number] = RecordColumns([], [], [])
    return counts


def _place(number: int, block: int) -> bytes:
    return b"b%d-%09d" % (number, block)


def read(log: Rdict, counts: list[int]) -> Iterator[tuple[int, RecordColumns]]:
    """The blocks, round-robin over the partitions."""
    for block in range(max(counts)):
        for number, count in enumerate(counts):
            if block < count:
                yield number, unpack(lz4.decompress_block(bytes(log[_place(number, block)] or b"")))


def floor(events: int, keys: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as directory:
        log = Rdict(f"{directory}/log", Options(raw_mode=True))
        counts = fill(log, events, keys)
        stores = [Rdict(f"{directory}/{number}", Options(raw_mode=True)) for number in range(_TASKS)]
        tasks = [Task(number, log, store) for number, store in enumerate(stores)]
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 100)
        started = last = time.perf_counter()
        cpu, handled = time.process_time(), 0
        blocks = read(log, counts)
        while group := list(islice(blocks, _TASKS)):
            for number, rows in group:
                _finish(tasks[number].handle(rows))
                handled += len(rows.keys)
            if time.perf_counter() - last >= _COMMIT_SECONDS:
                for task in tasks:
                    task.commit()
                last = time.perf_counter()
        for task in tasks:
            task.commit()
        seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
        for database in (log, *stores):
            database.close()
    return {"events": handled, "rate": handled / seconds, "cpu_us": cpu / handled * 1e6}


def _finish(coroutine: Any) -> None:
    """Drive a coroutine that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration:
        return
    raise RuntimeError("this loop does not wait for anything")


if __name__ == "__main__":
    sys.stdout.buffer.write(orjson.dumps(floor(int(sys.argv[1]), int(sys.argv[2]))) + b"\n")
