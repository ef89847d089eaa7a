"""Topics: listing them, and sending records."""

from __future__ import annotations

from typing import Annotated, Any, Final

import httpx
import msgspec
from fastapi import APIRouter, Header
from starlette.requests import Request
from starlette.responses import Response

from tidegate.errors import DecodeError, NotReadyError, UnknownNameError
from tidegate_api.context import Api, ApiContext, Caller
from tidegate_api.forwarding import is_forwarded, returned
from tidegate_api.models import RecordsRequest, RecordsSent, TopicList
from tidegate_api.problems import Problem
from tidegate_api.responses import json_answer
from tidegate_api.schemas import type_name

__all__ = ("router",)

router = APIRouter(tags=["topics"])


@router.get("/v1/topics", response_model=TopicList)
async def list_topics(api: Api, caller: Caller) -> Response:
    """The app's topics that the token may access, with their sizes."""
    declared = api.serving.topics()
    if not caller.may("ops") and not any(caller.may(f"topic:send:{name}") for name in declared):
        caller.require("ops", "topic:send:*")
    topics = []
    for status in await api.serving.topic_status():
        if not (caller.may("ops") or caller.may(f"topic:send:{status.name}")):
            continue
        known: Any = declared.get(status.name)
        topics.append(
            {
                "name": status.name,
                "type": "bytes" if known is None else type_name(known.codec.type),
                "keyed": known is not None and known.key is not None,
                "partitions": status.partitions,
                "records": sum(status.ends) - sum(status.starts),
                "dead_letters": status.name.endswith(".dead-letters"),
            }
        )
    return json_answer({"topics": topics})


class _Body(msgspec.Struct, forbid_unknown_fields=True):
    records: list[msgspec.Raw]


@router.post(
    "/v1/topics/{topic}/records",
    response_model=RecordsSent,
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/RecordsRequest"}}},
        }
    },
)
async def send_records(
    request: Request,
    api: Api,
    caller: Caller,
    topic: str,
    idempotency_key: Annotated[
        str | None,
        Header(
            description="A request with the same key is executed once within a day, on any worker.",
            max_length=200,
            min_length=1,
        ),
    ] = None,
) -> Response:
    """Append records, all of them or none, each validated against the topic's type. The response is sent once they are
    durable."""
    if topic not in api.serving.topics():
        caller.require("ops", f"topic:send:{topic}")
        raise UnknownNameError("topic", topic, api.serving.topics())
    caller.require(f"topic:send:{topic}")
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Problem(415, "media-type", "send JSON: Content-Type: application/json")
    body = await request.body()
    try:
        lines = msgspec.json.decode(body, type=_Body).records
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise DecodeError(f'the body must be {{"records": [{{"value": ...}}, ...]}}: {error}') from error
    if len(lines) > api.settings.api_page:
        raise Problem(422, "invalid", f"a request may have {api.settings.api_page} records (api_page)")
    if not lines:
        raise Problem(422, "invalid", "the request has no records")
    if idempotency_key is not None and not is_forwarded(request):
        response = await _by_preferred_writer(request, api, idempotency_key, body)
        if response is not None:
            return response
    sent = await api.serving.send(topic, [bytes(line) for line in lines], body=body, key=idempotency_key)
    token = str(sent.position)
    answer = {"records": sent.records, "position": token, "again": sent.again}
    return json_answer(answer, headers={"tidegate-position": token})


async def _by_preferred_writer(request: Request, api: ApiContext, key: str, body: bytes) -> Response | None:
    """Forward the request to the preferred writer. None: execute it here, which is as correct, but slower."""
    try:
        address = await api.serving.writer_for(key)
        if address == api.serving.address:
            return None
        answer = await api.peers.ask(address, request, body=body, seconds=api.settings.api_timeout / 2)
    except (httpx.HTTPError, NotReadyError):
        api.serving.invalidate_owners()
        return None
    return returned(answer) if answer.status_code in _FINAL else None


_FINAL: Final = (200, 409, 413, 422)
"""Statuses that every worker would return alike."""
_shown = RecordsRequest
"""Referenced by the document only: the body is validated against the topic's type."""
