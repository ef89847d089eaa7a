"""Runs of an app. A restore ends one run and starts another, with its own changelogs and internal topics.

The control topic has the current run under one key; without such a record, it is the first run.

1. A worker reads the current run before it plans its tasks, since the names of topics contain the run.
2. A task that opens first fences earlier writers with its transactional id, then confirms that its run is still the
   current one. So a suspended or late worker of an old run finds out before it writes anything.
3. A worker that reads the record of a newer run on the control topic stops with an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

import msgspec

from tidegate.errors import DecodeError, RunOverError
from tidegate.logs.base import Log, LogRecord, NewRecord, Reader, TopicPartition, TopicSpec
from tidegate.logs.records import select

__all__ = ("FIRST", "RUN_KEY", "Run", "RunWatch", "current_run", "decode_run", "fence", "run_record", "without_older")

RUN_KEY: Final = b"tidegate/run"
"""The key of the current run's record on the control topic. No task can have this name."""
_FIRST: Final = "1"


class Run(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    id: str = _FIRST
    """An increasing number, in decimal."""
    savepoint: str = ""
    """The savepoint that it started from; empty: none."""
    started_ms: int = 0
    ancestors: tuple[str, ...] = ()
    """`APP|RUN` of the runs of other apps that it continues: records that they have sent are not read again."""
    fence: tuple[str, ...] = ()
    """Transactional ids of the previous run that are not fenced yet."""
    previous: str = ""
    """The run that this one replaced on this log."""
    lineages: tuple[str, ...] = ()
    """Prefixes of the lineages of all changelogs of earlier runs on this log: a savepoint with one of them was taken on
    this log, so its offsets are valid."""

    def name(self, app: str, rest: str) -> str:
        """The name of a topic or transactional id of this run."""
        return f"{app}.{rest}" if self.id == _FIRST else f"{app}.run-{self.id}.{rest}"

    @property
    def skips(self) -> bool:
        """Whether its input topics may contain records of older runs."""
        return self.id != _FIRST or bool(self.ancestors)


FIRST: Final = Run()

_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(Run)


def run_record(run: Run, now: int) -> NewRecord:
    """The record on the control topic that makes this run the current one."""
    return RUN_KEY, _encoder.encode(run), now, ()


def decode_run(raw: bytes) -> Run:
    try:
        return _decoder.decode(raw)
    except msgspec.MsgspecError as error:
        raise DecodeError(f"the record of the current run on the control topic cannot be read: {error}") from error


async def fence(log: Log, control: TopicPartition, run: Run, now: int) -> None:
    """Fence the transactional ids of the previous run, and record on the control topic that this is done.

    The record of this run precedes it: a task that opens one of these ids again reads that record first."""
    if not run.fence:
        return
    for transactional_id in run.fence:
        writer = await log.writer(transactional_id)
        await writer.close()
    writer = await log.writer()
    try:
        await writer.append({control: [run_record(msgspec.structs.replace(run, fence=()), now)]})
    finally:
        await writer.close()


class Readable(Protocol):
    """A log or an observer."""

    async def topics(self) -> Mapping[str, TopicSpec]: ...
    async def start_offsets(self, sources: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]: ...
    async def end_offsets(self, sources: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]: ...
    def reader(self) -> Reader: ...


async def current_run(log: Readable, app: str) -> Run:
    """The last run on the control topic."""
    control = TopicPartition(f"{app}.control", 0)
    if control.topic not in await log.topics():
        return FIRST
    watch = RunWatch(log, control, FIRST)
    try:
        return await watch.latest()
    finally:
        await watch.close()


class RunWatch:
    """Reads the records of runs on the control topic."""

    def __init__(self, log: Readable, control: TopicPartition, run: Run) -> None:
        self._log, self._control, self._run = log, control, run
        self._reader: Reader | None = None
        self._found = FIRST
        self._lock = asyncio.Lock()

    async def latest(self) -> Run:
        """The current run at the time of the call or later."""
        async with self._lock:
            end = (await self._log.end_offsets([self._control]))[self._control]
            reader = await self._started()
            while reader.position(self._control) < end:
                for batch in await reader.read(timeout=5.0):
                    for record in batch.records:
                        if record.key == RUN_KEY and record.value is not None:
                            self._found = decode_run(record.value)
            return self._found

    async def confirm(self, app: str) -> None:
        """RunOverError: the worker's run is no longer the current one."""
        latest = await self.latest()
        if latest.id != self._run.id:
            raise RunOverError(app, self._run.id, latest.id, latest.savepoint)

    async def _started(self) -> Reader:
        if self._reader is None:
            start = await self._log.start_offsets([self._control])
            self._reader = self._log.reader()
            self._reader.assign({self._control: start[self._control]})
        return self._reader

    async def close(self) -> None:
        if self._reader is not None:
            reader, self._reader = self._reader, None
            await reader.close()


def without_older(app: str, run: Run, header: str) -> Callable[[Sequence[LogRecord]], Sequence[LogRecord]] | None:
    """A filter for records of a public topic: drops records that this app has sent in other runs, since their senders
    send them again, and records of the runs that it continues. None: there can be none."""
    if not run.skips:
        return None
    own_app, own_run = f"{app}|".encode(), f"{app}|{run.id}|".encode()
    others = tuple(f"{ancestor}|".encode() for ancestor in run.ancestors)

    def older(record: LogRecord) -> bool:
        for name, value in record.headers:
            if name == header:
                return value.startswith(others) or (value.startswith(own_app) and not value.startswith(own_run))
        return False

    return lambda records: select(records, [not older(record) for record in records])
