"""Change streams: committed changes as server-sent events."""

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
    key: Annotated[str | None, Query(description="Changes of this key only; default: of all keys.")] = None,
    prefix: Annotated[str, Query(description="Changes of keys that begin with this.")] = "",
) -> Response:
    """Committed changes over all workers. For one key: first an event `value` with its current value, then a `change`
    per commit that changes it. For all keys, or those with a prefix: `ready` once every worker is subscribed, then
    `change`. For maps, a change holds the changed entries. `missed`: the client was too slow and has a gap; read the
    state again. `end`: a task has moved, or a worker is gone; reconnect."""
    found = api.serving.state(service, state)
    raw = None if key is None else parse_key(key, found.service.key_type)
    return await open_stream(request, api, Watched(states=[found], key=raw, prefix=prefix.encode()))


@router.get("/v1/services/{service}/watch", response_class=EventSourceResponse, responses=_ANSWERS)
async def watch_actor(
    request: Request, api: Api, service: str, key: Annotated[str, Query(description="The key of the actor.")]
) -> Response:
    """Changes of all states of one actor in one stream; each event names its state. A browser has only six connections
    per host, and each stream uses one."""
    states = api.serving.readable_states(service)
    if not states:
        raise Problem(404, "not-found", f"service {service!r} has no state that can be watched")
    return await open_stream(
        request, api, Watched(states=states, key=parse_key(key, states[0].service.key_type), named=True)
    )
