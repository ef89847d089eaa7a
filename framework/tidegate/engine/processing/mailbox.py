"""Actor messages of a task: the messages that its handlers send, and the replies to the messages that it handles.

A message is handled in these steps, all of them within its commit:

1. If its idempotency key is known, the message was handled before: its reply is sent again. If the key was used for
   another message, the reply is an error.
2. Its handler runs.
3. The idempotency key is stored, with the reply.
4. The reply is sent to the caller, in the same transaction as state and outputs.

A handler that fails has no effects. If the error policy skips its message, the caller receives the error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from tidegate.codecs import encode_error, type_name
from tidegate.engine.formats.actor_message import (
    REMEMBERED,
    ActorMessage,
    RememberedReply,
    ReplyAddress,
    ReplyOutcome,
    actor_headers,
    address_of,
    failure,
    read_actor_message,
    reply_headers,
)
from tidegate.engine.processing.output import Output
from tidegate.engine.processing.work_item import WorkItem
from tidegate.errors import RejectedError, UnknownMessageError, UnknownNameError, UsageError
from tidegate.functions.declaration.handler_call import BoundHandler
from tidegate.functions.definition import ServiceDefinition
from tidegate.functions.messages import Request, definition_for
from tidegate.functions.topics import TopicDefinition
from tidegate.keys import encode_key
from tidegate.logs.base import Headers, LogRecord, NewRecord, TopicPartition
from tidegate.logs.records import check_headers, check_size
from tidegate.state.kinds import MapState
from tidegate.type_info import takes_none

if TYPE_CHECKING:
    from tidegate.engine.processing.context import Stamp, TaskContext

__all__ = ("Mailbox",)

_NOTHING: Final = b"null"


class Mailbox:
    def __init__(
        self,
        definition: ServiceDefinition,
        mailboxes: Mapping[str, ServiceDefinition],
        replies: TopicDefinition | None,
        stamp: Stamp,
        limit: int,
    ) -> None:
        """`mailboxes`: the services of the app that take messages. `limit`: how large a record the log takes."""
        self._definition, self._services, self._stamp, self._limit = definition, mailboxes, stamp, limit
        self._replies = replies
        self._outputs: dict[str, Output] = {}
        self.awaited = False
        """Whether there is a reply for an caller that is not committed yet."""

    # -- sent messages -----------------------------------------------------------------------------------------------
    def outgoing_record(
        self, service: str, key: Any, message: Any, timestamp: int, headers: Headers
    ) -> tuple[TopicPartition, NewRecord]:
        output = self._outputs.get(service) or self._output(service)
        messages = self._services[service].messages
        definition = definition_for(service, messages, message)
        try:
            raw = definition.codec.encode_raw(message)
        except definition.codec.encode_failures as error:
            raise encode_error(definition.codec, message, error) from error
        check_headers(headers)
        key_bytes = encode_key(key)
        stamped = (*actor_headers(definition.name, None, None), *headers, *self._stamp.headers)
        record = (key_bytes, raw, timestamp, stamped)
        check_size(output.topic.name, record, self._limit)
        return output.sources[output.place(key_bytes)], record

    def _output(self, service: str) -> Output:
        known = self._services.get(service)
        if known is None or known.mailbox is None:
            raise UnknownNameError("service that takes messages", service, self._services)
        output = self._outputs[service] = Output(known.mailbox, self._limit)
        return output

    # -- received messages -------------------------------------------------------------------------------------------
    def read(self, record: LogRecord) -> ActorMessage:
        return read_actor_message(self._definition.name, self._definition.messages, record)

    def pass_on(self, record: LogRecord) -> None:
        """A shuffle sends it on by its key. An caller waits for that commit, too."""
        self.awaited = self.awaited or address_of(record) is not None

    def accept(self, context: TaskContext, message: ActorMessage) -> BoundHandler | None:
        """Step 1. The handler of the message; None: the message was handled before, and its reply is sent again."""
        key = message.idempotency_key
        remembered: MapState[str, RememberedReply] = context.state(REMEMBERED)
        if key is not None and (known := remembered.get(key)) is not None:
            same = known.digest == message.digest
            outcome = ReplyOutcome.REPLIED if same else ReplyOutcome.REUSED
            self._answer(context, message.address, outcome, known.reply.encode() if same else _NOTHING)
            return None
        if message.name not in context.bound.messages:
            raise UnknownMessageError(self._definition.name, message.name, self._definition.messages)
        context.begin_message(message)
        return context.bound.messages[message.name]

    def complete(self, context: TaskContext, message: ActorMessage) -> None:
        """Steps 3 and 4, when the handler has finished."""
        reply = context.end_message() or _NOTHING
        if reply == _NOTHING:
            self._check_reply(message)
        if message.idempotency_key is not None:
            remembered: MapState[str, RememberedReply] = context.state(REMEMBERED)
            remembered[message.idempotency_key] = RememberedReply(digest=message.digest, reply=reply.decode())
        self._answer(context, message.address, ReplyOutcome.REPLIED, reply)

    def _check_reply(self, message: ActorMessage) -> None:
        """The caller of a Request expects a value of its type."""
        if isinstance(message.message, Request) and not takes_none(message.reply.type):
            expected = type_name(message.reply.type)
            raise UsageError(
                f"a handler of {self._definition.name!r} does not reply to {message.name!r}, which is a "
                f"Request[{expected}]: call ctx.reply({expected}(...)), raise RejectedError, or make the message a "
                f"Request[{expected} | None]"
            )

    def encode_reply(self, message: ActorMessage | None, value: Any) -> bytes:
        if message is None:
            raise UsageError(
                f"a handler of {self._definition.name!r} replies, but handles no message: events and timers have no "
                f"caller. Emit the value, or send it to an actor with ctx.tell."
            )
        if value is None:
            return _NOTHING
        raw: bytes = message.reply.encode(value)
        return raw

    def give_up(self, context: TaskContext, work: WorkItem, error: BaseException) -> None:
        """Reply to the caller that the message has failed."""
        if work.record is None or work.input is None or not work.input.topic.mailbox:
            return
        address = address_of(work.record)
        if address is not None:
            outcome = ReplyOutcome.REJECTED if isinstance(error, RejectedError) else ReplyOutcome.FAILED
            self._answer(context, address, outcome, failure(error))

    def _answer(self, context: TaskContext, address: ReplyAddress | None, outcome: ReplyOutcome, raw: bytes) -> None:
        if address is None or self._replies is None or address.partition >= self._replies.partitions:
            return
        headers = (*reply_headers(address, outcome), *self._stamp.headers)
        record = (address.caller.encode(), raw, context.now, headers)
        check_size(self._replies.name, record, self._limit)
        context.put(TopicPartition(self._replies.name, address.partition), record)
        self.awaited = True
