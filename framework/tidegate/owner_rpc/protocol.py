"""The wire protocol of the owner RPC: requests, answers, framing.

A message is a length of four bytes and a tagged msgpack struct. A client sends Hello with its version, then one request
at a time; the owner answers each with a result or a Failure. An owner that stops sends Goodbye instead of the next
answer: it has not executed any request after the last answer. Nothing is pickled.
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
    "MAX_MESSAGE_BYTES",
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
MAX_MESSAGE_BYTES: Final = 16 << 20
"""Limit of a message: twice the largest record."""

_LENGTH: Final = struct.Struct(">I")


# ---------------------------------------------------------------------------------------------------------- requests


class Hello(Struct, tag="hello"):
    version: int


AppendedRecord = tuple[int, bytes | None, bytes | None, int, list[tuple[str, bytes]]]
"""Partition, key, value, timestamp, headers: the client encodes and partitions them."""


class Append(Struct, tag="append"):
    """Append records in one transaction."""

    topic: str
    records: list[AppendedRecord]


class Topics(Struct, tag="topics"):
    """All topics, with the start and end offsets of their partitions."""


class Services(Struct, tag="services"):
    """The progress of each task."""


class Entries(Struct, tag="entries"):
    """A page of a keyed state: of one key, or of the keys that start with `prefix`."""

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
    """An operator state of all tasks."""

    service: str
    state: str


class Reset(Struct, tag="reset"):
    """Remove state, timers and positions; with `outputs` also the output topics, with `everything` all topics."""

    outputs: bool = False
    everything: bool = False


class TakeCheckpoint(Struct, tag="checkpoint"):
    """Take a checkpoint or, with a name, a savepoint; with `stop`, stop the app afterwards."""

    name: str | None = None
    stop: bool = False
    timeout: float | None = None


Request = Hello | Append | Topics | Services | Entries | Timers | Items | Reset | TakeCheckpoint


# ----------------------------------------------------------------------------------------------------------- answers


class Welcome(Struct, tag="welcome"):
    """The owner's process, app and run."""

    version: int
    app: str
    pid: int
    command: str
    started: int
    run: str = "1"
    """The run that the owner works for."""


class Failure(Struct, tag="failure"):
    kind: str
    """The name of the error's class."""
    message: str


class Goodbye(Struct, tag="goodbye"):
    """The owner stops. It has not executed any request after its last answer."""


class Appended(Struct, tag="appended"):
    positions: dict[int, int]
    """By partition, the position after the last record."""


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
    """Input offsets that are not processed yet."""
    watermark: int
    waiting: int
    """Handlers that have started and not finished."""
    worker: str = ""
    """The worker that runs it; empty: unknown."""


class ServiceStatus(Struct):
    name: str
    tasks: list[TaskStatus]


class ServicesFound(Struct, tag="services"):
    services: list[ServiceStatus]


class StatePage(Struct, tag="page"):
    page: Page


class OperatorItems(Struct, tag="items"):
    items: list[tuple[int, bytes | None]]
    """By task, its encoded list."""


class ResetDone(Struct, tag="reset"):
    emptied: list[str]
    """The topics that were emptied or removed."""


class CheckpointTaken(Struct, tag="checkpoint"):
    epoch: int


Done = Appended | TopicsFound | ServicesFound | StatePage | OperatorItems | ResetDone | CheckpointTaken
"""Results of executed requests."""
Answer = Welcome | Failure | Goodbye | Done


# ------------------------------------------------------------------------------------------------------------ frames

_encoder: Final = msgspec.msgpack.Encoder()
decode_request: Final[Callable[[bytes], Request]] = msgspec.msgpack.Decoder(Request).decode
decode_answer: Final[Callable[[bytes], Answer]] = msgspec.msgpack.Decoder(Answer).decode


def encode(message: Request | Answer) -> bytes:
    body = _encoder.encode(message)
    if len(body) > MAX_MESSAGE_BYTES:
        raise OwnerError(f"a message of {len(body):,} bytes is over the limit of {MAX_MESSAGE_BYTES:,}")
    return _LENGTH.pack(len(body)) + body


async def read_frame(reader: asyncio.StreamReader) -> bytes | None:
    """The body of the next message; None: the peer has closed the connection."""
    try:
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        if length > MAX_MESSAGE_BYTES:
            raise OwnerError(f"a message of {length:,} bytes is over the limit of {MAX_MESSAGE_BYTES:,}")
        return await reader.readexactly(length)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
