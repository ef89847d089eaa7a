"""Actors: all states and timers of a key, and messages to it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Header
from starlette.requests import Request
from starlette.responses import Response

from tidegate import Service
from tidegate.codecs import Codec
from tidegate.errors import ElsewhereError, PositionError, UsageError
from tidegate.keys import decode_key
from tidegate.serving import ActorState, Position, parse_position
from tidegate_api.context import MAY_READ, MAY_SEND, Api, ApiContext
from tidegate_api.models import ActorView, MessageRequest, Reply, Told
from tidegate_api.point_reads import AS_OF_ALONE, key_in_body, key_in_path, no_such_path
from tidegate_api.responses import NO_STORE, json_answer, key_text, past_headers, position_headers, state_answer
from tidegate_api.routes.states import AsOf, MinPosition

__all__ = ("router",)

router = APIRouter(tags=["actors"])


@router.get("/v1/services/{service}/actors/{key:anything}", response_model=ActorView, dependencies=MAY_READ)
async def get_actor(
    request: Request,
    api: Api,
    service: str,
    key: str,
    min_position: MinPosition = None,
    as_of: AsOf = None,
) -> Response:
    """All states and timers of a key as of one commit, or as of a checkpoint or savepoint."""
    definition = api.serving.service(service)
    parts = request.scope["raw_path"].split(b"/", 5)
    if len(parts) < 6:
        raise no_such_path()
    raw = key_in_path(parts[5], definition.key_type)
    max_bytes = api.settings.api_max_bytes
    if as_of:
        if min_position is not None:
            raise PositionError(AS_OF_ALONE)
        with api.scans.one():
            actor, past = await api.serving.actor_past(as_of, service, raw, max_bytes=max_bytes)
        return _shown(actor, raw, definition.key_type, past_headers(past))
    number = definition.task_for(raw)
    try:
        if min_position is not None:
            await api.serving.wait(definition, number, parse_position(min_position), api.settings.api_timeout)
        actor, reached = api.serving.actor(service, raw, max_bytes=max_bytes)
    except ElsewhereError:
        return await api.peers.forward(request, definition, number)
    return _shown(actor, raw, definition.key_type, position_headers([reached]))


def _shown(actor: ActorState, key: bytes, key_type: Any, headers: Mapping[str, str]) -> Response:
    states = b",".join(b"%b:%b" % (orjson.dumps(name), text) for name, text in actor.states.items())
    timers = orjson.dumps([{"name": name, "at": at, "time": domain} for name, domain, at in actor.timers])
    body = b'{"key":%b,"states":{%b},"timers":%b}' % (key_text(key, key_type), states, timers)
    return state_answer(body, headers)


# ---------------------------------------------------------------------------------------------------------- messages

IdempotencyKey = Annotated[
    str | None,
    Header(
        description="A message with the same key is handled once, even if it is retried.", max_length=200, min_length=1
    ),
]


@router.post("/v1/services/{service}/tell", response_model=Told, dependencies=MAY_SEND)
async def tell_actor(api: Api, service: str, body: MessageRequest, idempotency_key: IdempotencyKey = None) -> Response:
    """Put a message into an actor's mailbox. The response is sent once it is durable, before it is handled."""
    known, _, key, message = _message(api, service, body)
    posted = await known.tell(key, message, idempotency_key=idempotency_key)
    position = Position(api.serving.run, {}, {posted.topic: {posted.partition: posted.position}})
    return json_answer({"position": str(position)}, headers={"tidegate-position": str(position)})


@router.post("/v1/services/{service}/ask", response_model=Reply, dependencies=MAY_SEND)
async def ask_actor(api: Api, service: str, body: MessageRequest, idempotency_key: IdempotencyKey = None) -> Response:
    """Send a message to an actor and wait for its reply, which is sent once the handler's effects are committed. 504:
    no reply arrived in time, and the message may still be handled; retry with the same idempotency key. 409: the
    handler rejected the message. 502: the handler failed."""
    known, replies, key, message = _message(api, service, body)
    seconds = min(body.timeout or api.settings.api_timeout, api.settings.api_timeout)
    reply = await known.ask(key, message, timeout=seconds, idempotency_key=idempotency_key)
    text = replies.encode(reply) if reply is not None else b"null"
    return state_answer(b'{"reply":%b}' % text, NO_STORE)


def _message(api: ApiContext, service: str, body: MessageRequest) -> tuple[Service, Codec[Any], Any, Any]:
    """The service, the codec of its reply, and the decoded key and message."""
    definition = api.serving.service(service)
    api.serving.require_running()
    kinds = definition.messages
    if not kinds:
        raise UsageError(f"service {service!r} handles no messages: @{service}.on(MessageType) adds a handler")
    if body.type is None and len(kinds) > 1:
        raise UsageError(f"give the type of the message; service {service!r} handles {', '.join(sorted(kinds))}")
    kind = kinds.get(body.type) if body.type is not None else next(iter(kinds.values()))
    if kind is None:
        raise UsageError(f"service {service!r} handles no message {body.type!r}, only {', '.join(sorted(kinds))}")
    message = kind.codec.decode(json.dumps(body.message).encode())
    raw = key_in_body(body.key, definition.key_type)
    return api.app.services[service], kind.reply, decode_key(raw, definition.key_type), message
