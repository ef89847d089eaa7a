"""Records and dead letters as tests see them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidegate.engine.processing.context import STAMP_HEADER
from tidegate.errors import DecodeError
from tidegate.functions.context import Origin
from tidegate.functions.topics import TopicDefinition
from tidegate.keys import decode_key
from tidegate.logs.base import Headers, LogRecord

__all__ = ("DeadLetter", "SentRecord", "dead_letter", "sent_record")


@dataclass(frozen=True, kw_only=True)
class SentRecord:
    """A committed record of a topic."""

    value: Any
    """Of the topic's type; None: a tombstone. Bytes, if the app does not declare the topic."""
    key: Any
    timestamp: int
    headers: Headers
    """Without internal headers."""
    partition: int
    offset: int


@dataclass(frozen=True, kw_only=True)
class DeadLetter:
    """A record or a timer that failed and became a dead letter by the service's error policy."""

    key: bytes | None
    value: bytes | None
    """The original bytes; None for a timer, and for a tombstone."""
    timestamp: int
    error_type: str
    error: str
    traceback: str
    attempts: int
    origin: Origin | None
    """The position of the record in its input; None for a timer."""
    timer: str | None
    """The name of the timer; None for a record."""
    headers: Headers
    """The headers of the original record."""


def sent_record(topic: TopicDefinition | None, partition: int, record: LogRecord) -> SentRecord:
    value, key = record.value, record.key
    return SentRecord(
        value=value if topic is None else topic.decode(value),
        key=key if topic is None or key is None else _key(key, topic.key_type),
        timestamp=record.timestamp,
        headers=_own_headers(record),
        partition=partition,
        offset=record.offset,
    )


def _key(raw: bytes, key_type: Any) -> Any:
    try:
        return decode_key(raw, key_type)
    except DecodeError:  # keys of a topic need not all be of the declared type
        return raw


def _own_headers(record: LogRecord) -> Headers:
    return tuple(header for header in record.headers if header[0] != STAMP_HEADER)


_ABOUT = (
    "error-type",
    "error-message",
    "error-traceback",
    "attempts",
    "origin-topic",
    "origin-partition",
    "origin-offset",
    "timer",
    "timer-at",
)


def dead_letter(record: LogRecord) -> DeadLetter:
    about: dict[str, str] = {}
    rest: list[tuple[str, bytes]] = []
    for name, value in _own_headers(record):
        if name in _ABOUT and name not in about:
            about[name] = value.decode()
        else:
            rest.append((name, value))
    origin = None
    if "origin-topic" in about:
        origin = Origin(about["origin-topic"], int(about["origin-partition"]), int(about["origin-offset"]))
    return DeadLetter(
        key=record.key,
        value=record.value,
        timestamp=record.timestamp,
        error_type=about["error-type"],
        error=about["error-message"],
        traceback=about["error-traceback"],
        attempts=int(about["attempts"]),
        origin=origin,
        timer=about.get("timer"),
        headers=tuple(rest),
    )
