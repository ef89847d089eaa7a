"""Sends to topics from outside of services: through the worker's own producer, or through Faust's.

Faust's producer carries what its agents send, so that it is there before Faust commits their positions; and what a
process sends to a broker without a worker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from tidegate.directories import on_kafka
from tidegate.engine.processing.context import ORIGIN_HEADER, STAMP_HEADER
from tidegate.errors import LogUnavailableError
from tidegate.functions.messages import refuse_in_handlers
from tidegate.functions.topics import TopicDefinition, TopicHeaders
from tidegate.host.host import Host
from tidegate.keys import encode_key
from tidegate.logs.base import Headers, NewRecord, TopicPartition
from tidegate.time.clock import Instant, to_instant

__all__ = ("AppPublisher", "FaustPublisher", "in_milliseconds", "plain_headers")

_OURS = frozenset({STAMP_HEADER, ORIGIN_HEADER})


class FaustPublisher(Protocol):
    """Sends through Faust's producer."""

    def in_agent(self) -> bool: ...

    async def send_shared(
        self,
        topic: TopicDefinition,
        value: Any,
        *,
        key: Any,
        timestamp: Instant | float | None,
        headers: TopicHeaders,
    ) -> int | None: ...


class AppPublisher:
    """A Publisher of an app. `loaded`: its Faust app, if there is one; `faust` makes it."""

    def __init__(
        self, host: Callable[[], Host], loaded: Callable[[], FaustPublisher | None], faust: Callable[[], FaustPublisher]
    ) -> None:
        self._host, self._loaded, self._faust = host, loaded, faust

    async def send(
        self,
        topic: TopicDefinition,
        value: Any,
        *,
        key: Any,
        timestamp: Instant | float | None,
        headers: TopicHeaders,
    ) -> int | None:
        refuse_in_handlers("send", topic.name)
        faust = self._faust_for(topic)
        if faust is not None:
            return await faust.send_shared(topic, value, key=key, timestamp=timestamp, headers=headers)
        host = self._host()
        records = _records(host, topic, [(key, value)], in_milliseconds(timestamp), plain_headers(headers))
        ((source, (record,)),) = records.items()
        async with host.lock.shared():
            return await host.producer.send(source, record)

    async def send_many(
        self, topic: TopicDefinition, values: Iterable[Any], *, timestamp: Instant | None, headers: Headers
    ) -> Mapping[int, int]:
        refuse_in_handlers("send", topic.name)
        host = self._host()
        if not host.running:
            raise _not_running(host, topic)
        records = _records(host, topic, ((None, value) for value in values), timestamp, headers)
        if not records:
            return {}
        async with host.lock.shared():
            ends = await host.producer.send_together(records)
        return {source.partition: end for source, end in ends.items()}

    def _faust_for(self, topic: TopicDefinition) -> FaustPublisher | None:
        """Faust's, or None: the worker's own."""
        host = self._host()
        if host.running:
            faust = self._loaded()
            return faust if faust is not None and faust.in_agent() else None
        if on_kafka(host.definition.resolve(host.flags).settings):
            return self._faust()
        raise _not_running(host, topic)


def _not_running(host: Host, topic: TopicDefinition) -> LogUnavailableError:
    return LogUnavailableError(f"app {host.definition.id!r} is not running, so nothing can be sent to {topic.name!r}")


def _records(
    host: Host,
    topic: TopicDefinition,
    keyed: Iterable[tuple[Any, Any]],
    timestamp: Instant | None,
    headers: Headers,
) -> dict[TopicPartition, list[NewRecord]]:
    """By the partitions that they go to."""
    definition = host.engine.plan.topics[topic.name]
    when = host.clock.now() if timestamp is None else to_instant(timestamp)
    records: dict[TopicPartition, list[NewRecord]] = {}
    for key, value in keyed:
        raw = definition.encode(value)  # first: a key function may not know what to do with a wrong type
        key_bytes = encode_key(key) if key is not None else definition.key_of(value)
        target = TopicPartition(topic.name, definition.partition_for(key_bytes or b""))
        records.setdefault(target, []).append((key_bytes, raw, when, headers))
    return records


def plain_headers(headers: TopicHeaders | None) -> Headers:
    """Headers without those of a sending task: an agent that forwards a record is not that task."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers or ()
    return tuple((name, value) for name, value in pairs if name not in _OURS)


def in_milliseconds(timestamp: Instant | float | None) -> int | None:
    """Faust's times are seconds as floats; ours are milliseconds as integers."""
    if timestamp is None:
        return None
    return round(timestamp * 1000) if isinstance(timestamp, float) else to_instant(timestamp)
