"""`tidegate tail`: follows a topic with an observer of the log, and prints its committed records."""

from __future__ import annotations

import asyncio
import base64
import select
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tidegate.client.log_access import LogAccess
from tidegate.engine.processing.context import ORIGIN_HEADER, STAMP_HEADER
from tidegate.engine.topology.plan import dead_letter_topic
from tidegate.errors import LogUnavailableError, OffsetOutOfRangeError, UnknownTopicError, UsageError
from tidegate.functions.topics import TopicDefinition
from tidegate.host.app_definition import AppDefinition
from tidegate.logs.base import Batch, LogRecord, Reader, TopicPartition
from tidegate.logs.observer import Observer
from tidegate.query.json_values import json_bytes, json_key
from tidegate_app.output import note, write_lines

__all__ = ("TailCommand", "TailOptions", "record_line")

WAIT: Final = 1.0
"""Seconds between checks whether stdout is still open."""


@dataclass(frozen=True, kw_only=True)
class TailOptions:
    """Which records to print."""

    topic: str
    from_beginning: bool = False
    count: int | None = None
    partition: int | None = None
    until_end: bool = False


class TailCommand:
    def __init__(self, definition: AppDefinition, flags: Mapping[str, Any], tail: TailOptions) -> None:
        self._access = LogAccess(definition, flags)
        letters = (dead_letter_topic(definition.id, service) for service in definition.services)
        topics = (*definition.topics, *(topic for topic in letters if topic is not None))
        self._declared: dict[str, TopicDefinition] = {topic.name: topic for topic in topics}
        self._tail, self._from_beginning, self._left = tail, tail.from_beginning, tail.count
        self._key_type = self._declared[tail.topic].key_type if tail.topic in self._declared else str

    async def run(self) -> None:
        observer = self._access.observer()
        if not await self._start(observer):
            return
        try:
            while self._left != 0 and await self._follow(observer):
                note(f"{self._tail.topic} was emptied; continuing with new records.")
        finally:
            await observer.stop()

    async def _start(self, observer: Observer) -> bool:
        """Wait for the log to exist. False: it does not exist, and --until-end does not wait."""
        waited = False
        while True:
            try:
                await observer.start()
            except LogUnavailableError:
                if self._access.exists:
                    raise
            else:
                return True
            if self._tail.topic not in self._declared:
                raise UnknownTopicError(self._tail.topic, self._declared)
            if self._tail.until_end:
                return False
            self._from_beginning = True  # all records of a log that is created now are new
            if not waited:
                note(f"There is no log in {self._access.where} yet; waiting for a worker or a 'tidegate send'.")
            waited = True
            await asyncio.sleep(0.2)

    async def _follow(self, observer: Observer) -> bool:
        """Print until --count or --until-end is reached. True: the topic was recreated and must be followed again."""
        positions = await self._positions(observer)
        if positions is None:
            return False
        identity = observer.identity(self._tail.topic)
        reader = observer.reader()
        reader.assign(positions)
        ends = await observer.written_offsets(positions) if self._tail.until_end else None
        try:
            while self._left != 0 and not _reached(reader, ends):
                batches = await reader.read(timeout=WAIT)
                if observer.identity(self._tail.topic) != identity:
                    return True
                self._print(batches)
                if not batches and _stdout_is_closed():
                    return False
        except (OffsetOutOfRangeError, UnknownTopicError):
            return True
        finally:
            await reader.close()
        return False

    async def _positions(self, observer: Observer) -> dict[TopicPartition, int] | None:
        """The start positions; None: the topic does not exist, and --until-end does not wait."""
        waited = False
        while (spec := (await observer.topics()).get(self._tail.topic)) is None:
            if self._tail.topic not in self._declared:
                raise UnknownTopicError(self._tail.topic, {*self._declared, *await observer.topics()})
            if self._tail.until_end:
                return None
            self._from_beginning = True  # all records of a topic that is created now are new
            if not waited:
                note(f"There is no topic {self._tail.topic} yet; waiting for it.")
            waited = True
            await asyncio.sleep(observer.poll_interval)
            await observer.refresh()
        sources = self._sources(spec.partitions)
        find = observer.start_offsets if self._from_beginning else observer.end_offsets
        self._from_beginning = True  # if the topic is emptied, all its later records are new
        return dict(await find(sources))

    def _sources(self, partitions: int) -> list[TopicPartition]:
        wanted = self._tail.partition
        if wanted is not None and not 0 <= wanted < partitions:
            raise UsageError(
                f"{self._tail.topic} has {partitions} partitions, 0 to {partitions - 1}: there is no partition {wanted}"
            )
        numbers = range(partitions) if wanted is None else (wanted,)
        return [TopicPartition(self._tail.topic, number) for number in numbers]

    def _print(self, batches: Iterable[Batch]) -> None:
        lines = [
            record_line(record, batch.source.partition, self._key_type) for batch in batches for record in batch.records
        ]
        if self._left is not None:
            lines = lines[: self._left]
            self._left -= len(lines)
        write_lines(lines)


def record_line(record: LogRecord, partition: int, key_type: Any = str) -> dict[str, Any]:
    return {
        "key": json_key(record.key, key_type),
        "value": json_bytes(record.value),
        "timestamp": record.timestamp,
        "partition": partition,
        "offset": record.offset,
        "headers": _headers(record),
    }


def _headers(record: LogRecord) -> dict[str, Any]:
    """The headers by name; several of one name as a list. Internal headers are left out."""
    found: dict[str, Any] = {}
    for name, raw in record.headers:
        if name in (STAMP_HEADER, ORIGIN_HEADER):
            continue
        value = _text(raw)
        if name not in found:
            found[name] = value
        elif isinstance(found[name], list):
            found[name].append(value)
        else:
            found[name] = [found[name], value]
    return found


def _text(raw: bytes | None) -> Any:
    if raw is None:
        return None
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(raw).decode()}


def _reached(reader: Reader, ends: Mapping[TopicPartition, int] | None) -> bool:
    return ends is not None and all(reader.position(source) >= end for source, end in ends.items())


def _stdout_is_closed() -> bool:
    """Whether stdout is a pipe whose reader has closed it. A write would fail, but the next one may be far away."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))
