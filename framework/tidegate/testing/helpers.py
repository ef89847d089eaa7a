"""Helpers of the harness: its settings, and reading logs and states."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tidegate.errors import UnknownNameError
from tidegate.functions.context import Timer
from tidegate.functions.declaration.references import ServiceReference, TopicReference
from tidegate.functions.declaration.type_variables import TypeVar
from tidegate.functions.definition import ServiceDefinition
from tidegate.host.app_definition import AppDefinition
from tidegate.logs.base import LogRecord, TopicPartition
from tidegate.query.pages import PageEntry
from tidegate.query.views import ServiceView
from tidegate.settings import Settings
from tidegate.settings_resolution import resolve
from tidegate.state.layout import EVENT, unpack_due
from tidegate.testing.memory_log import MemoryLog

__all__ = (
    "ServiceName",
    "TopicName",
    "all_entries",
    "all_records",
    "chosen",
    "harness_settings",
    "in_event_loop",
    "timer_of",
    "topic_name",
)

T = TypeVar("T", default=Any)
K = TypeVar("K", default=Any)

TopicName = TopicReference[T] | str
"""A topic of the app, or its name."""
ServiceName = ServiceReference[K] | str


def in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def harness_settings(
    definition: AppDefinition, partitions: int | None, directory: Path | None, settings: dict[str, Any]
) -> Settings:
    """The app's own settings, without the environment; watermarks are forwarded immediately."""
    chosen = {"partitions": partitions, "store": "memory" if directory is None else "rocksdb", **settings}
    resolved = resolve({"partitions": 1, **definition.options}, chosen, {}).settings
    return dataclasses.replace(resolved, progress_interval=0.0)


def chosen(definition: AppDefinition, services: Iterable[ServiceName] | None) -> tuple[ServiceDefinition, ...]:
    if services is None:
        return definition.services
    known = {service.name: service for service in definition.services}
    names = [service if isinstance(service, str) else service.name for service in services]
    for name in names:
        if name not in known:
            raise UnknownNameError("service", name, known)
    return tuple(known[name] for name in names)


def topic_name(topic: TopicName) -> str:
    return topic if isinstance(topic, str) else topic.name


def timer_of(entry: PageEntry) -> Timer:
    domain, at = unpack_due(entry.value)
    return Timer(name=entry.sub.decode(), at=at, time="event" if domain == EVENT else "processing")


async def all_entries(view: ServiceView, state: str, key: bytes) -> list[PageEntry]:
    entries: list[PageEntry] = []
    after: bytes | None = b""
    while after is not None:
        page = await view.entries(state, key=key, after=after)
        entries += page.entries
        after = page.after
    return entries


async def all_records(log: MemoryLog, topic: str) -> list[tuple[int, LogRecord]]:
    known = await log.topics()
    if topic not in known:
        raise UnknownNameError("topic", topic, known)
    sources = [TopicPartition(topic, number) for number in range(known[topic].partitions)]
    reader = log.reader()
    reader.assign(await log.start_offsets(sources))
    found: dict[int, list[LogRecord]] = {source.partition: [] for source in sources}
    while batches := await reader.read(max_records=100_000):
        for batch in batches:
            found[batch.source.partition] += batch.records
    await reader.close()
    return [(number, record) for number, records in found.items() for record in records]
