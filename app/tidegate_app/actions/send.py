"""`tidegate send`: sends lines from stdin as records, in batches; each is durable before the next one is sent."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Mapping
from typing import Any, Final

from rich.progress import BarColumn, Progress, ProgressColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn

from tidegate.client.log_access import LogAccess
from tidegate.errors import (
    DataError,
    LogUnavailableError,
    OwnerLeftError,
    OwnerLostError,
    RefusedError,
    TidegateError,
    UnknownNameError,
    UsageError,
)
from tidegate.formatting import count
from tidegate.host.app_definition import AppDefinition
from tidegate.owner_rpc.protocol import AppendedRecord
from tidegate.serving.record_builder import RecordBuilder, needs_key, typed_topic
from tidegate.time.clock import SystemClock
from tidegate_app.output import note, stderr_console
from tidegate_app.stdin import StdinLines

__all__ = ("SendCommand",)

BATCH_RECORDS: Final = 1000
BATCH_BYTES: Final = 256 << 10
IDLE: Final = 0.5
"""After so many seconds without input, an owned log is released, so that a worker can start."""
OWN_SECONDS: Final = 2.0
"""After so many seconds it is released briefly in any case, so that a waiting worker can take over."""


class SendCommand:
    """Sends lines from stdin in batches."""

    def __init__(self, definition: AppDefinition, flags: Mapping[str, Any], topic: str, *, skip_bad: bool) -> None:
        if topic not in (names := {declared.name for declared in definition.topics}):
            raise UnknownNameError("topic", topic, names)
        self._access, self._topic, self._skip_bad = LogAccess(definition, flags), topic, skip_bad
        self._batch: list[AppendedRecord] = []
        self._bytes = 0
        self._line = 0
        self._owned_since = time.monotonic()
        self.sent = 0
        self.skipped = 0

    async def run(self, field: str | None, envelopes: bool) -> None:
        async with self._access.opened():
            maker = await self._maker(field, envelopes)
            lines = StdinLines()
            if lines.is_terminal:
                note(f"Type JSON lines for {self._topic}; Ctrl-D ends.")
            try:
                with _progress(self._topic, lines) as progress:
                    await self._send(maker, lines, progress)
            except TidegateError:
                note(f"Sent {count(self.sent, 'record')} to {self._topic} before the error.")
                raise
        skipped = f", skipped {count(self.skipped, 'invalid line')}" if self.skipped else ""
        note(f"Sent {count(self.sent, 'record')} to {self._topic}{skipped}.")

    async def _maker(self, field: str | None, envelopes: bool) -> RecordBuilder:
        await self._access.create_topics()
        plan = await self._access.plan()
        topic = typed_topic(plan, self._topic)
        keyed = needs_key(plan, topic)
        return RecordBuilder(
            topic,
            SystemClock(),
            keyed=keyed,
            largest=self._access.max_record_bytes,
            field=field,
            envelopes=envelopes,
        )

    async def _send(self, maker: RecordBuilder, lines: StdinLines, progress: _Bar) -> None:
        async for chunk in lines.chunks(idle=IDLE):
            for line in chunk:
                self._line += 1
                await self._take(maker, line)
            await self._flush()
            await self._yield_ownership(idle=not chunk)
            progress.show(self.sent, lines.bytes_read)

    async def _yield_ownership(self, *, idle: bool) -> None:
        """Release an owned log regularly, so that a worker can become its owner."""
        if self._access.owns and (idle or time.monotonic() - self._owned_since >= OWN_SECONDS):
            await self._access.release()
            await asyncio.sleep(0.1)
            self._owned_since = time.monotonic()

    async def _take(self, maker: RecordBuilder, line: bytes) -> None:
        if not line.strip():
            return
        try:
            record = maker.make(line)
        except DataError as error:
            await self._flush()
            if self._skip_bad:
                self._note_bad(error)
                return
            raise UsageError(
                f"line {self._line}: {error}\n  {_shortened(line)}\n"
                f"The lines before it were sent, those after it were not. Fix the line and send the rest "
                f"(tail -n +{self._line}), or skip invalid lines with --skip-bad."
            ) from error
        self._batch.append(record)
        self._bytes += len(line)
        if len(self._batch) >= BATCH_RECORDS or self._bytes >= BATCH_BYTES:
            await self._flush()

    def _note_bad(self, error: Exception) -> None:
        self.skipped += 1
        if self.skipped <= 10:
            note(f"skipped line {self._line}: {error}")
        elif self.skipped == 11:
            note("further skipped lines are only counted")

    async def _flush(self) -> None:
        """Send the collected records, and wait until they are durable."""
        while self._batch:
            try:
                await (await self._access.operations()).append(self._topic, self._batch)
            except OwnerLeftError:
                await self._access.release()  # the owner shut down in order: connect to the next one
                continue
            except RefusedError as error:
                if error.kind != "UnknownTopicError":
                    raise
                raise UsageError(f"{error}\nThe worker runs a different version of the code: restart it.") from error
            except (OwnerLostError, LogUnavailableError) as error:
                raise UsageError(
                    f"{error}.\nEither all or none of the last {count(len(self._batch), 'record')}, up to line "
                    f"{self._line}, are in the log: check with 'tidegate tail' before you send them again."
                ) from error
            self.sent += len(self._batch)
            self._batch, self._bytes = [], 0


class _Bar:
    """A progress bar, on a terminal only."""

    def __init__(self, topic: str, size: int | None, progress: Progress | None) -> None:
        self._progress = progress
        self._task = None if progress is None else progress.add_task(topic, total=size, sent="")

    def __enter__(self) -> _Bar:
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def show(self, sent: int, read: int) -> None:
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=read, sent=f"{sent:,} records")


def _progress(topic: str, lines: StdinLines) -> _Bar:
    if not sys.stderr.isatty() or lines.is_terminal:
        return _Bar(topic, None, None)
    columns: list[ProgressColumn] = [TextColumn("{task.description}"), BarColumn()]
    if lines.size is not None:
        columns.append(TaskProgressColumn())
    columns += [TextColumn("{task.fields[sent]}"), TimeElapsedColumn()]
    return _Bar(topic, lines.size, Progress(*columns, console=stderr_console(), transient=True))


def _shortened(line: bytes) -> str:
    text = line.decode(errors="replace").strip()
    return text if len(text) <= 200 else f"{text[:200]}…"
