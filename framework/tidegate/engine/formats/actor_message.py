"""The format of messages to actors, and of replies, in the log.

A message is a record in its service's mailbox: the actor's key, the message as JSON, and headers with its name, its
idempotency key and its reply address. A reply is a record in `{app}.replies`, in the partition that the caller reads;
its headers are the id of the ask and the outcome.

All callers in all processes share the topic of replies: callers that read the same partition skip each other's replies.
A topic per caller would have to be created, and removed when its caller is gone.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import msgspec

from tidegate.codecs import codec_for
from tidegate.errors import (
    ActorError,
    DecodeError,
    EncodeError,
    IdempotencyError,
    MessageFailedError,
    RejectedError,
    UnknownMessageError,
)
from tidegate.functions.messages import MessageDefinition
from tidegate.logs.base import Headers, LogRecord
from tidegate.state.declaration import StateDeclaration
from tidegate.state.kinds import TTL

__all__ = (
    "ACTOR_HEADERS",
    "REMEMBERED",
    "ActorMessage",
    "RememberedReply",
    "ReplyAddress",
    "ReplyOutcome",
    "actor_headers",
    "address_of",
    "failure",
    "read_actor_message",
    "read_reply",
    "remembered_replies",
    "reply_headers",
    "reply_id",
)

MESSAGE_HEADER: Final = "tidegate-message"
IDEMPOTENCY_HEADER: Final = "tidegate-idempotency-key"
REPLY_TO_HEADER: Final = "tidegate-reply-to"
ACTOR_HEADERS: Final = frozenset((MESSAGE_HEADER, IDEMPOTENCY_HEADER, REPLY_TO_HEADER))
REPLY_HEADER: Final = "tidegate-reply"
OUTCOME_HEADER: Final = "tidegate-outcome"

REMEMBERED: Final = "idempotency.keys"
"""The state with the idempotency keys. No handler can declare a state of this name."""
MAX_KEY_LENGTH: Final = 256
"""Limit of an idempotency key, in characters."""
MAX_REASON_LENGTH: Final = 4000
"""Limit of an error's text in a reply, in characters."""


class ReplyOutcome(enum.Enum):
    REPLIED = "replied"
    REJECTED = "rejected"
    FAILED = "failed"
    REUSED = "reused"
    """The idempotency key was used for another message."""


class ReplyAddress(NamedTuple):
    """The partition and the id for a reply."""

    partition: int
    caller: str
    number: int

    @property
    def id(self) -> bytes:
        """Identifies the reply."""
        return f"{self.caller}|{self.number}".encode()


class ActorMessage(NamedTuple):
    """A decoded message."""

    name: str
    message: Any
    reply: Any
    """The codec of what is replied."""
    idempotency_key: str | None
    digest: str
    """The digest of the message, if it has an idempotency key."""
    address: ReplyAddress | None
    """None: the sender expects no reply."""


class RememberedReply(msgspec.Struct, frozen=True):
    """The outcome of a message with an idempotency key."""

    digest: str
    reply: str
    """As JSON."""


def remembered_replies(ms: int) -> StateDeclaration:
    return StateDeclaration(
        name=REMEMBERED,
        kind="map",
        codec=codec_for(RememberedReply),
        key_type=str,
        ttl=TTL(milliseconds=ms),
        queryable=False,  # replies are for their callers only
    )


# ---------------------------------------------------------------------------------------------------------- messages


def actor_headers(name: str, idempotency_key: str | None, address: ReplyAddress | None) -> Headers:
    headers = [(MESSAGE_HEADER, name.encode())]
    if idempotency_key is not None:
        if not 0 < len(idempotency_key) <= MAX_KEY_LENGTH:
            raise EncodeError(
                f"an idempotency key has 1 to {MAX_KEY_LENGTH} characters, not {len(idempotency_key)}: a UUID will do"
            )
        headers.append((IDEMPOTENCY_HEADER, idempotency_key.encode()))
    if address is not None:
        headers.append((REPLY_TO_HEADER, f"{address.partition}|{address.caller}|{address.number}".encode()))
    return headers


def read_actor_message(service: str, messages: Mapping[str, MessageDefinition], record: LogRecord) -> ActorMessage:
    """DecodeError: the record is not a message that this service takes."""
    headers = dict(record.headers)
    name = headers.get(MESSAGE_HEADER, b"").decode(errors="replace")
    definition = messages.get(name)
    if definition is None:
        raise DecodeError(str(UnknownMessageError(service, name, messages)))
    if record.value is None:
        raise DecodeError(f"a message {name!r} without content")
    message = definition.codec.decode(record.value)
    idempotency_key, digest = headers.get(IDEMPOTENCY_HEADER), ""
    if idempotency_key is not None:
        digest = blake2b(name.encode() + b"\0" + record.value, digest_size=12).hexdigest()
    return ActorMessage(name, message, definition.reply, _key_in(idempotency_key), digest, address_of(record))


def _key_in(header: bytes | None) -> str | None:
    try:
        return None if header is None else header.decode()
    except UnicodeDecodeError as error:
        raise DecodeError(f"the idempotency key of a message is not text: {error}") from error


def address_of(record: LogRecord) -> ReplyAddress | None:
    """The reply address of a record, also of one that is unreadable otherwise. None: no valid address, so no caller
    waits."""
    for name, content in record.headers:
        if name == REPLY_TO_HEADER:
            return _address_in(content or b"")
    return None


def _address_in(header: bytes) -> ReplyAddress | None:
    try:
        partition, caller, number = header.decode().split("|")
        address = ReplyAddress(int(partition), caller, int(number))
    except ValueError:
        return None
    return address if address.partition >= 0 else None


# ----------------------------------------------------------------------------------------------------------- replies


def reply_headers(address: ReplyAddress, outcome: ReplyOutcome) -> Headers:
    return ((REPLY_HEADER, address.id), (OUTCOME_HEADER, outcome.value.encode()))


def reply_id(record: LogRecord) -> bytes | None:
    return next((content for name, content in record.headers if name == REPLY_HEADER), None)


def failure(error: BaseException) -> bytes:
    """The body of a reply for an error."""
    return msgspec.json.encode({"error": type(error).__name__, "reason": str(error)[:MAX_REASON_LENGTH]})


def read_reply(
    service: str, definition: MessageDefinition, idempotency_key: str | None, record: LogRecord
) -> Any | ActorError:
    """The replied value, or the error to raise."""
    outcome = ReplyOutcome(dict(record.headers)[OUTCOME_HEADER].decode())
    raw = record.value or b"null"
    if outcome is ReplyOutcome.REPLIED:
        return None if raw == b"null" else definition.reply.decode(raw)
    if outcome is ReplyOutcome.REUSED:
        return IdempotencyError(service, idempotency_key or "")
    details = msgspec.json.decode(raw, type=dict[str, str])
    if outcome is ReplyOutcome.REJECTED:
        return RejectedError(details["reason"])
    return MessageFailedError(service, details["error"], details["reason"])
