"""Changes as they are committed, as server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import Annotated, Final

import anyio
import httpx
import orjson
from fastapi import APIRouter, Query
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.requests import Request
from starlette.responses import Response

from tidegate.errors import ElsewhereError, NotReadyError
from tidegate.serving import Changed, StateOf, parse_key, wait_for_news
from tidegate_api.answers import key_text, position_headers
from tidegate_api.context import MAY_READ, Api, ApiContext
from tidegate_api.forwarding import is_forwarded
from tidegate_api.problems import Problem

__all__ = ("router",)

router = APIRouter(tags=["state"], dependencies=MAY_READ)

PING_SECONDS: Final = 15
LOOK_SECONDS: Final = 1.0
"""How often a stream looks whether its tasks are still here."""


@router.get(
    "/v1/services/{service}/states/{state}/watch",
    response_class=EventSourceResponse,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)
async def watch_state(
    request: Request,
    api: Api,
    service: str,
    state: str,
    key: Annotated[str | None, Query(description="Of this key; none: of all keys.")] = None,
    prefix: Annotated[str, Query(description="Of keys that begin with this.")] = "",
) -> Response:
    """Changes as they are committed. Of one key: first an event `value` with what it holds now, then `change` for each
    commit that changes it. Maps tell which entries changed. `missed`: you were too slow; read again. A stream ends when
    the key's task moves to another worker: connect again."""
    found = api.serving.state(service, state)
    raw = None if key is None else parse_key(key, found.service.key_type)
    api.watchers.take()
    try:
        return await _stream(request, api, found, raw, prefix.encode())
    except BaseException:
        api.watchers.give_back()
        raise


@router.get(
    "/v1/services/{service}/watch",
    response_class=EventSourceResponse,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)
async def watch_actor(
    request: Request, api: Api, service: str, key: Annotated[str, Query(description="Which actor.")]
) -> Response:
    """Changes of all states of one actor, in one stream: each event names its state. Browsers have six connections to
    a host, and a stream takes one."""
    states = [
        api.serving.state(service, name)
        for name, known in api.serving.states(service).items()
        if known.queryable and known.kind != "operator"
    ]
    if not states:
        raise Problem(404, "not-found", f"service {service!r} has no state that can be watched")
    raw = parse_key(key, states[0].service.key_type)
    number = states[0].task_of(raw)
    api.watchers.take()
    try:
        api.serving.tasks.task(states[0].service, number)
        return _sent(_actor_events(api, states, raw, number))
    except ElsewhereError:
        try:
            return await _forwarded(request, api, states[0], number)
        except BaseException:
            api.watchers.give_back()
            raise
    except BaseException:
        api.watchers.give_back()
        raise


async def _actor_events(
    api: ApiContext, states: list[StateOf], key: bytes, number: int
) -> AsyncIterator[ServerSentEvent]:
    news, most = asyncio.Event(), api.settings.api_max_bytes
    try:
        with ExitStack() as watching:
            watchers = [
                (state, watching.enter_context(api.serving.watch(state, key=key, prefix=b"", most=most, news=news)))
                for state in states
            ]
            for state in states:
                yield _first(api, state, key, named=True)
            while not api.stopping.is_set() and _still_here(api, states[0], [number]):
                for state, watcher in watchers:
                    for changed in watcher.take():
                        yield _event(state, changed, named=True)
                await wait_for_news(news, LOOK_SECONDS)
    finally:
        api.watchers.give_back()


async def _stream(request: Request, api: ApiContext, state: StateOf, key: bytes | None, prefix: bytes) -> Response:
    if key is not None:
        number = state.task_of(key)
        try:
            api.serving.tasks.task(state.service, number)
        except ElsewhereError:
            return await _forwarded(request, api, state, number)
        numbers = [number]
    else:
        numbers = api.serving.tasks.here(state.service)
        if len(numbers) < state.service.tasks:
            raise Problem(
                422, "invalid", "several workers share this service: watch one key (?key=), or each worker by itself"
            )
    return _sent(_events(api, state, key, prefix, numbers))


def _sent(events: AsyncIterator[ServerSentEvent]) -> Response:
    shutdown = anyio.Event()  # the worker's own says when it is over
    return EventSourceResponse(
        events, ping=PING_SECONDS, headers={"cache-control": "no-store"}, shutdown_event=shutdown
    )


async def _forwarded(request: Request, api: ApiContext, state: StateOf, number: int) -> Response:
    if is_forwarded(request):
        raise Problem(421, "elsewhere", f"task {number} of {state.service.name} is not here")
    owner = await api.serving.owner(state.service, number)
    try:
        response = await api.peers.stream(owner.address, request)
    except httpx.HTTPError as error:
        api.serving.doubt()
        raise NotReadyError(f"{state.service.name}.{number}", "its owner does not answer") from error
    api.watchers.give_back()  # the owner counts it
    return response


async def _events(
    api: ApiContext, state: StateOf, key: bytes | None, prefix: bytes, numbers: list[int]
) -> AsyncIterator[ServerSentEvent]:
    try:
        with api.serving.watch(state, key=key, prefix=prefix, most=api.settings.api_max_bytes) as watcher:
            yield _first(api, state, key)
            while not api.stopping.is_set() and _still_here(api, state, numbers):
                async for changed in watcher.changes(patience=LOOK_SECONDS):
                    yield _event(state, changed)
    finally:
        api.watchers.give_back()


def _first(api: ApiContext, state: StateOf, key: bytes | None, *, named: bool = False) -> ServerSentEvent:
    if key is None:
        return ServerSentEvent(event="ready", data="{}", sep="\n")
    text, reached = api.serving.read(state, key, most=api.settings.api_max_bytes)
    shown = key_text(key, state.service.key_type)
    body = b'{%b"key":%b,"value":%b}' % (_name(state, named), shown, text or b"null")
    return ServerSentEvent(
        event="value", id=position_headers([reached])["tidegate-position"], data=body.decode(), sep="\n"
    )


def _event(state: StateOf, changed: Changed | None, *, named: bool = False) -> ServerSentEvent:
    if changed is None:
        return ServerSentEvent(event="missed", data="{}", sep="\n")
    shown = key_text(changed.key, state.service.key_type)
    what = b"entries" if changed.entries is not None else b"value"
    value = changed.entries or changed.value or b"null"
    body = b'{%b"key":%b,"%b":%b}' % (_name(state, named), shown, what, value)
    return ServerSentEvent(event="change", id=str(changed.position), data=body.decode(), sep="\n")


def _name(state: StateOf, named: bool) -> bytes:
    return b'"state":%b,' % orjson.dumps(state.declaration.name) if named else b""


def _still_here(api: ApiContext, state: StateOf, numbers: list[int]) -> bool:
    try:
        for number in numbers:
            api.serving.tasks.task(state.service, number)
    except (ElsewhereError, NotReadyError):
        return False
    return True
