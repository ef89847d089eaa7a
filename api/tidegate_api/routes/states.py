"""Committed state: a key, and pages of keys over all tasks and workers."""

from __future__ import annotations

import asyncio
import base64
import heapq
from typing import Annotated, Any

import httpx
import msgspec
import orjson
from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from tidegate.errors import PositionError
from tidegate.serving import KeyEntry, KeyPage, KeyRange, QueryableState, after_key, parse_position
from tidegate_api.context import MAY_READ, Api, ApiContext
from tidegate_api.forwarding import detail_of, is_forwarded, tasks_of
from tidegate_api.models import KeysPage, KeyValue
from tidegate_api.point_reads import AS_OF, AS_OF_ALONE
from tidegate_api.problems import Problem
from tidegate_api.responses import key_text, merged_headers, past_headers, position_headers, state_answer

__all__ = ("router",)

router = APIRouter(tags=["state"], dependencies=MAY_READ)

MinPosition = Annotated[
    str | None, Query(description="Wait until the state includes everything in this token.", max_length=16384)
]
AsOf = Annotated[
    str | None,
    Query(
        description="The number of a checkpoint, or the name of a savepoint.",
        pattern=AS_OF,
    ),
]
Cursor = Annotated[
    str | None,
    Query(description="The cursor of the previous page.", pattern=r"^([A-Za-z0-9_-]{4})*([A-Za-z0-9_-]{2,3})?$"),
]


@router.get("/v1/services/{service}/states/{state}/keys/{key:anything}", response_model=KeyValue)
async def get_key(
    request: Request,
    service: str,
    state: str,
    key: str,
    at: Annotated[str | None, Query(description="The key of one entry of a map.")] = None,
    min_position: MinPosition = None,
    as_of: AsOf = None,
) -> Response:
    """The committed value of a key; a map or a list with all its entries."""
    answer: Response = await request.app.state.points.answer(request, request.scope["raw_path"].split(b"/", 7))
    return answer


# ------------------------------------------------------------------------------------------------------------- pages


@router.get("/v1/services/{service}/states/{state}/keys", response_model=KeysPage)
async def list_keys(
    request: Request,
    api: Api,
    service: str,
    state: str,
    prefix: Annotated[str, Query(description="Keys that begin with this.")] = "",
    start: Annotated[str, Query(description="From this key on.")] = "",
    end: Annotated[str, Query(description="Up to this key, exclusive.")] = "",
    limit: Annotated[int, Query(ge=1, le=100_000, description="The size of the page.")] = 100,
    cursor: Cursor = None,
    min_position: MinPosition = None,
    as_of: AsOf = None,
) -> Response:
    """Keys and their values, in byte order, over all tasks and workers. A page is not a snapshot: each key is as of a
    commit, and later keys may be as of later commits."""
    found = api.serving.state(service, state)
    keys = KeyRange(prefix=prefix.encode(), start=start.encode(), end=end.encode(), cursor=_decoded_cursor(cursor))
    limit = min(limit, api.settings.api_page)
    if as_of and min_position:
        raise PositionError(AS_OF_ALONE)
    with api.scans.one():
        if as_of:
            page, past = await api.serving.scan_past(
                as_of, found, keys, limit=limit, max_bytes=api.settings.api_max_bytes
            )
            headers = past_headers(past)
        elif is_forwarded(request):
            numbers = tasks_of(request)
            page, headers = await _local(api, found, keys, numbers, limit, min_position)
            return state_answer(_raw_page(page), headers)
        else:
            page, headers = await _gather(request, api, found, keys, limit, min_position)
    key_type = found.service.key_type
    items = b",".join(_shown(item, key_type) for item in page.items)
    following = b"null" if page.next is None else orjson.dumps(base64.urlsafe_b64encode(page.next).decode().rstrip("="))
    return state_answer(b'{"items":[%b],"cursor":%b}' % (items, following), headers)


def _shown(item: KeyEntry, key_type: Any) -> bytes:
    key = key_text(item.key, key_type)
    if item.value is None:
        return b'{"key":%b,"value":null,"truncated":true}' % key
    return b'{"key":%b,"value":%b}' % (key, item.value)


def _decoded_cursor(cursor: str | None) -> bytes:
    return base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)) if cursor else b""


async def _local(
    api: ApiContext, state: QueryableState, keys: KeyRange, numbers: list[int], limit: int, min_position: str | None
) -> tuple[KeyPage, dict[str, str]]:
    if min_position is not None:
        wanted = parse_position(min_position)
        for number in numbers:
            await api.serving.wait(state.service, number, wanted, api.settings.api_timeout)
    page, reached = await api.serving.scan(state, keys, numbers, limit=limit, max_bytes=api.settings.api_max_bytes)
    return page, position_headers(reached)


async def _gather(
    request: Request, api: ApiContext, state: QueryableState, keys: KeyRange, limit: int, min_position: str | None
) -> tuple[KeyPage, dict[str, str]]:
    """Request a page from all owners, and merge them up to the lowest cursor; the rest is left for the next page."""
    here, there = await api.peers.owners(state.service, range(state.service.tasks))
    parts = await asyncio.gather(
        _local(api, state, keys, here, limit, min_position) if here or not there else _nothing(),
        *(_remote(request, api, address, numbers) for address, numbers in there.items()),
    )
    pages = [page for page, _ in parts]
    bound = min((page.next for page in pages if page.next is not None), default=None)
    merged = heapq.merge(*(page.items for page in pages), key=lambda item: item.key)
    items = [item for item in merged if bound is None or after_key(item.key) <= bound]
    following = bound
    if len(items) > limit:
        items, following = items[:limit], after_key(items[limit - 1].key)
    headers = [found for _, found in parts if found]
    if len(headers) == 1:
        return KeyPage(items, following), headers[0]
    positions = [parse_position(found["tidegate-position"]) for found in headers if "tidegate-position" in found]
    return KeyPage(items, following), merged_headers(headers, api.serving.run, positions)


async def _nothing() -> tuple[KeyPage, dict[str, str]]:
    return KeyPage([], None), {}


class _Page(msgspec.Struct):
    """A page as workers exchange it, with the raw bytes of keys."""

    items: list[tuple[bytes, bool, msgspec.Raw]]
    """Key, whether the value is complete, value."""
    next: bytes | None


def _raw_page(page: KeyPage) -> bytes:
    items = [(item.key, item.value is not None, msgspec.Raw(item.value or b"null")) for item in page.items]
    return msgspec.json.encode(_Page(items, page.next))


async def _remote(
    request: Request, api: ApiContext, address: str, numbers: list[int]
) -> tuple[KeyPage, dict[str, str]]:
    try:
        answer = await api.peers.ask(address, request, tasks=numbers)
    except httpx.HTTPError as error:
        api.serving.invalidate_owners()
        raise Problem(503, "not-ready", f"a worker does not respond ({type(error).__name__})") from error
    if answer.status_code != 200:
        api.serving.invalidate_owners()
        status = answer.status_code if answer.status_code in (422, 429) else 503
        raise Problem(status, "not-ready", f"the worker at {address} replied: {detail_of(answer)}")
    page = msgspec.json.decode(answer.content, type=_Page)
    items = [KeyEntry(key, bytes(value) if whole else None) for key, whole, value in page.items]
    return KeyPage(items, page.next), dict(answer.headers)
