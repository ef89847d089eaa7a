"""Runs: the lives of an app. A restore ends one and starts another, with changelogs and internal topics of its own.

The control topic tells which run is current, under one key; without such a record it is the first.

1. A worker reads it before it plans anything, since topics are named for the run.
2. A task that opens has fenced whoever wrote under its transactional id; only then does it make sure that its run is
   still the current one. So a worker of an older run that wakes up, or is late, finds out before it writes anything.
3. A worker that reads of another run on the control topic stops, and says so.
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
    """A number, written out: each is greater than those before it."""
    savepoint: str = ""
    """Where it began; empty: from nothing."""
    started_ms: int = 0
    ancestors: tuple[str, ...] = ()
    """`APP|RUN` of the runs under other names that it goes on from: what they have sent is not read again."""
    fence: tuple[str, ...] = ()
    """Transactional ids of the run before that may still be in somebody's hands."""
    previous: str = ""
    """The run that this one replaced on this log."""
    lineages: tuple[str, ...] = ()
    """The beginnings of the lineages of all changelogs that earlier runs had on this log: a savepoint that knows one
    was taken here, and its offsets mean something."""

    def name(self, app: str, rest: str) -> str:
        """What something is called that belongs to this run alone."""
        return f"{app}.{rest}" if self.id == _FIRST else f"{app}.run-{self.id}.{rest}"

    @property
    def skips(self) -> bool:
        """Whether there may be records of older runs in topics that it reads."""
        return self.id != _FIRST or bool(self.ancestors)


FIRST: Final = Run()

_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(Run)


def run_record(run: Run, now: int) -> NewRecord:
    """For the control topic: from here on this run is the current one."""
    return RUN_KEY, _encoder.encode(run), now, ()


def decode_run(raw: bytes) -> Run:
    try:
        return _decoder.decode(raw)
    except msgspec.MsgspecError as error:
        raise DecodeError(f"the control topic's record of the current run cannot be read: {error}") from error


async def fence(log: Log, control: TopicPartition, run: Run, now: int) -> None:
    """Take the transactional ids of the run before out of everybody's hands, and say that this is done.

    It comes after the record that this run has begun: who opens one of these ids again reads that record first."""
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
    """A log, or an observer of one."""

    async def topics(self) -> Mapping[str, TopicSpec]: ...
    async def start_offsets(self, sources: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]: ...
    async def end_offsets(self, sources: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]: ...
    def reader(self) -> Reader: ...


async def current_run(log: Readable, app: str) -> Run:
    """The one that the control topic names last."""
    control = TopicPartition(f"{app}.control", 0)
    if control.topic not in await log.topics():
        return FIRST
    watch = RunWatch(log, control, FIRST)
    try:
        return await watch.latest()
    finally:
        await watch.close()


class RunWatch:
    """Reads the control topic for the sake of the run alone."""

    def __init__(self, log: Readable, control: TopicPartition, run: Run) -> None:
        self._log, self._control, self._run = log, control, run
        self._reader: Reader | None = None
        self._found = FIRST
        self._lock = asyncio.Lock()

    async def latest(self) -> Run:
        """The current run, as of now or later."""
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
        """RunOverError: ours is not the current one any more."""
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
    """What to keep of records that were read from a public topic: not those that this app has sent in other runs, for
    their senders send them again, and not those of the runs that it goes on from. None: there can be none."""
    if not run.skips:
        return None
    own, mine = f"{app}|".encode(), f"{app}|{run.id}|".encode()
    others = tuple(f"{ancestor}|".encode() for ancestor in run.ancestors)

    def older(record: LogRecord) -> bool:
        for name, value in record.headers:
            if name == header:
                return value.startswith(others) or (value.startswith(own) and not value.startswith(mine))
        return False

    return lambda records: select(records, [not older(record) for record in records])
