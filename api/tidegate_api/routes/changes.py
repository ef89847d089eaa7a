"""Changes as they are committed, as server-sent events."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from sse_starlette import EventSourceResponse
from starlette.requests import Request
from starlette.responses import Response

from tidegate.serving import parse_key
from tidegate_api.context import MAY_READ, Api
from tidegate_api.event_streams import Watched, open_stream
from tidegate_api.problems import Problem

__all__ = ("router",)

router = APIRouter(tags=["state"], dependencies=MAY_READ)

_EVENT: Final = {
    "type": "object",
    "description": "One event.",
    "properties": {
        "event": {"enum": ["value", "ready", "change", "missed", "end"]},
        "data": {"type": "string", "description": "JSON."},
        "id": {"type": "string", "description": "A position."},
        "retry": {"type": "integer"},
    },
    "required": ["event", "data"],
    "additionalProperties": False,
}
_ANSWERS: Final[dict[int | str, dict[str, Any]]] = {200: {"content": {"text/event-stream": {"schema": _EVENT}}}}


@router.get("/v1/services/{service}/states/{state}/watch", response_class=EventSourceResponse, responses=_ANSWERS)
async def watch_state(
    request: Request,
    api: Api,
    service: str,
    state: str,
    key: Annotated[str | None, Query(description="Of this key; none: of all keys.")] = None,
    prefix: Annotated[str, Query(description="Of keys that begin with this.")] = "",
) -> Response:
    """Changes as they are committed, whichever workers have the keys. Of one key: first an event `value` with what it
    holds now, then `change` for each commit that changes it. Of all keys, or those with a prefix: `ready` when every
    worker listens, then `change`. Maps tell which entries changed. `missed`: you were too slow; read again. `end`: a
    task has moved, or a worker is gone; connect again."""
    found = api.serving.state(service, state)
    raw = None if key is None else parse_key(key, found.service.key_type)
    return await open_stream(request, api, Watched(states=[found], key=raw, prefix=prefix.encode()))


@router.get("/v1/services/{service}/watch", response_class=EventSourceResponse, responses=_ANSWERS)
async def watch_actor(
    request: Request, api: Api, service: str, key: Annotated[str, Query(description="Which actor.")]
) -> Response:
    """Changes of all states of one actor, in one stream: each event names its state. Browsers have six connections to
    a host, and a stream takes one."""
    states = api.serving.readable_states(service)
    if not states:
        raise Problem(404, "not-found", f"service {service!r} has no state that can be watched")
    return await open_stream(
        request, api, Watched(states=states, key=parse_key(key, states[0].service.key_type), named=True)
    )
