"""What travels over the socket: requests, answers, and how they are framed.

A message is its length, four bytes, and a msgpack struct that names its kind. A client says hello and its version; then
it asks, one request at a time, and gets one answer to each: what it asked for, or a failure. An owner that stops says
goodbye instead of the next answer: what came after the last answer was not taken up. Nothing is ever pickled.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Final

import msgspec
from msgspec import Struct

from tidegate.errors import OwnerError
from tidegate.query.pages import Page

__all__ = (
    "MOST_BYTES",
    "VERSION",
    "Answer",
    "Append",
    "Appended",
    "AppendedRecord",
    "CheckpointTaken",
    "Done",
    "Entries",
    "Failure",
    "Goodbye",
    "Hello",
    "Items",
    "OperatorItems",
    "Request",
    "Reset",
    "ResetDone",
    "ServiceStatus",
    "Services",
    "ServicesFound",
    "StatePage",
    "TakeCheckpoint",
    "TaskStatus",
    "Timers",
    "TopicStatus",
    "Topics",
    "TopicsFound",
    "Welcome",
    "decode_answer",
    "decode_request",
    "encode",
    "read_frame",
)

VERSION: Final = 1
MOST_BYTES: Final = 16 << 20
"""Of a message: the largest record, twice over."""

_LENGTH: Final = struct.Struct(">I")


# ---------------------------------------------------------------------------------------------------------- requests


class Hello(Struct, tag="hello"):
    version: int


AppendedRecord = tuple[int, bytes | None, bytes | None, int, list[tuple[str, bytes]]]
"""Partition, key, value, timestamp, headers: encoded and placed by whoever sends them."""


class Append(Struct, tag="append"):
    """Append these, in one transaction."""

    topic: str
    records: list[AppendedRecord]


class Topics(Struct, tag="topics"):
    """All topics, and how far each partition reaches."""


class Services(Struct, tag="services"):
    """How far each task has come."""


class Entries(Struct, tag="entries"):
    """A page of a keyed state: of one key, or of all that begin with `prefix`."""

    service: str
    state: str
    key: bytes | None = None
    prefix: bytes = b""
    after: bytes = b""
    limit: int = 1000


class Timers(Struct, tag="timers"):
    service: str
    key: bytes | None = None
    after: bytes = b""
    limit: int = 1000


class Items(Struct, tag="items"):
    """An operator state, of all tasks."""

    service: str
    state: str


class Reset(Struct, tag="reset"):
    """Forget state, timers and positions; empty also what services write, or everything."""

    outputs: bool = False
    everything: bool = False


class TakeCheckpoint(Struct, tag="checkpoint"):
    """Take a checkpoint, or a savepoint of this name; then stop, if asked to."""

    name: str | None = None
    stop: bool = False
    timeout: float | None = None


Request = Hello | Append | Topics | Services | Entries | Timers | Items | Reset | TakeCheckpoint


# ----------------------------------------------------------------------------------------------------------- answers


class Welcome(Struct, tag="welcome"):
    """Who owns the log."""

    version: int
    app: str
    pid: int
    command: str
    started: int
    run: str = "1"
    """Which of the app's runs it works for."""


class Failure(Struct, tag="failure"):
    kind: str
    """The class of the error."""
    message: str


class Goodbye(Struct, tag="goodbye"):
    """The owner stops. It has not taken up anything after its last answer."""


class Appended(Struct, tag="appended"):
    positions: dict[int, int]
    """Per partition, the position after the last record."""


class TopicStatus(Struct):
    name: str
    partitions: int
    compact: bool
    retention_ms: int | None
    retention_bytes: int | None
    starts: list[int]
    ends: list[int]


class TopicsFound(Struct, tag="topics"):
    topics: list[TopicStatus]


class TaskStatus(Struct):
    number: int
    state: str
    lag: int
    """Offsets of its inputs that are not handled yet."""
    watermark: int
    waiting: int
    """Handlers that have begun and not ended."""
    worker: str = ""
    """Who runs it, where that is known."""


class ServiceStatus(Struct):
    name: str
    tasks: list[TaskStatus]


class ServicesFound(Struct, tag="services"):
    services: list[ServiceStatus]


class StatePage(Struct, tag="page"):
    page: Page


class OperatorItems(Struct, tag="items"):
    items: list[tuple[int, bytes | None]]
    """Per task, its stored list."""


class ResetDone(Struct, tag="reset"):
    emptied: list[str]
    """The topics that were emptied or removed."""


class CheckpointTaken(Struct, tag="checkpoint"):
    epoch: int


Done = Appended | TopicsFound | ServicesFound | StatePage | OperatorItems | ResetDone | CheckpointTaken
"""What a request was answered with that was carried out."""
Answer = Welcome | Failure | Goodbye | Done


# ------------------------------------------------------------------------------------------------------------ frames

_encoder: Final = msgspec.msgpack.Encoder()
decode_request: Final[Callable[[bytes], Request]] = msgspec.msgpack.Decoder(Request).decode
decode_answer: Final[Callable[[bytes], Answer]] = msgspec.msgpack.Decoder(Answer).decode


def encode(message: Request | Answer) -> bytes:
    body = _encoder.encode(message)
    if len(body) > MOST_BYTES:
        raise OwnerError(f"a message of {len(body):,} bytes is over the limit of {MOST_BYTES:,}")
    return _LENGTH.pack(len(body)) + body


async def read_frame(reader: asyncio.StreamReader) -> bytes | None:
    """The body of the next message; None: the other side has closed."""
    try:
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        if length > MOST_BYTES:
            raise OwnerError(f"a message of {length:,} bytes is over the limit of {MOST_BYTES:,}")
        return await reader.readexactly(length)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
