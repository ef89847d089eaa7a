"""Batch reads: the values of many keys, over all workers."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

import msgspec
import orjson
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from tidegate.errors import ValueTooLargeError
from tidegate.serving import Position, QueryableState, parse_position
from tidegate_api.context import MAY_READ, Api, ApiContext
from tidegate_api.forwarding import detail_of, is_forwarded
from tidegate_api.models import BatchRequest, BatchValues
from tidegate_api.point_reads import key_in_body
from tidegate_api.problems import Problem
from tidegate_api.responses import key_text, merged_headers, position_headers, state_answer
from tidegate_api.routes.states import MinPosition

__all__ = ("router",)

router = APIRouter(tags=["state"], dependencies=MAY_READ)


@router.post("/v1/services/{service}/states/{state}/batch", response_model=BatchValues)
async def read_batch(
    request: Request,
    api: Api,
    service: str,
    state: str,
    batch: BatchRequest,
    min_position: MinPosition = None,
) -> Response:
    """The values of many keys at once."""
    found = api.serving.state(service, state)
    if len(batch.keys) > api.settings.api_page:
        raise Problem(422, "invalid", f"a batch may have {api.settings.api_page} keys (api_page)")
    raw = [key_in_body(key, found.service.key_type) for key in batch.keys]
    with api.scans.one():
        return await _batch(request, api, found, batch.keys, raw, min_position)


async def _batch(
    request: Request,
    api: ApiContext,
    state: QueryableState,
    keys: list[Any],
    raw: list[bytes],
    min_position: str | None,
) -> Response:
    by_task: dict[int, list[int]] = defaultdict(list)
    for index, key in enumerate(raw):
        by_task[state.task_of(key)].append(index)
    here = set(api.serving.tasks.here(state.service))
    if is_forwarded(request) and not by_task.keys() <= here:
        raise Problem(421, "elsewhere", "this worker does not own all of these keys")
    values: list[bytes | None] = [None] * len(keys)
    wanted = None if min_position is None else parse_position(min_position)
    headers = []
    for number in sorted(by_task.keys() & here):
        headers.append(await _read_here(api, state, number, by_task[number], raw, values, wanted))
        _check_size(values, api.settings.api_max_bytes)
    elsewhere = sorted(by_task.keys() - here)
    answers = await asyncio.gather(*(_read_there(request, api, state, n, by_task[n], keys, values) for n in elsewhere))
    _check_size(values, api.settings.api_max_bytes)
    parts = b",".join(_value(key, state, text) for key, text in zip(raw, values, strict=True))
    return state_answer(b'{"values":[%b]}' % parts, _merge(api, [*headers, *answers]))


def _check_size(values: list[bytes | None], max_bytes: int) -> None:
    if sum(len(text) for text in values if text is not None) > max_bytes:
        raise ValueTooLargeError(max_bytes)


def _merge(api: ApiContext, headers: list[dict[str, str]]) -> dict[str, str]:
    if len(headers) == 1:
        return {
            name: headers[0][name] for name in headers[0] if name.startswith("tidegate-") or name == "cache-control"
        }
    positions: list[Position] = [
        parse_position(found["tidegate-position"]) for found in headers if "tidegate-position" in found
    ]
    return merged_headers(headers, api.serving.run, positions)


async def _read_here(
    api: ApiContext,
    state: QueryableState,
    number: int,
    indexes: list[int],
    raw: list[bytes],
    values: list[bytes | None],
    wanted: Position | None,
) -> dict[str, str]:
    if wanted is not None:
        await api.serving.wait(state.service, number, wanted, api.settings.api_timeout)
    found, reached = api.serving.read_many(
        state, number, [raw[index] for index in indexes], max_bytes=api.settings.api_max_bytes
    )
    for index, text in zip(indexes, found, strict=True):
        values[index] = text
    return position_headers([reached])


class _Found(msgspec.Struct):
    found: bool
    value: msgspec.Raw


class _Answer(msgspec.Struct):
    values: list[_Found]


async def _read_there(
    request: Request,
    api: ApiContext,
    state: QueryableState,
    number: int,
    indexes: list[int],
    keys: list[Any],
    values: list[bytes | None],
) -> dict[str, str]:
    body = orjson.dumps({"keys": [keys[index] for index in indexes]})
    answer = await api.peers.ask_owner(request, state.service, number, body)
    if answer.status_code != 200:
        status = answer.status_code if answer.status_code in (422, 429) else 503
        raise Problem(status, "not-ready", detail_of(answer))
    for index, one in zip(indexes, msgspec.json.decode(answer.content, type=_Answer).values, strict=True):
        values[index] = bytes(one.value) if one.found else None
    return dict(answer.headers)


def _value(key: bytes, state: QueryableState, text: bytes | None) -> bytes:
    shown = key_text(key, state.service.key_type)
    if text is None:
        return b'{"key":%b,"found":false,"value":null}' % shown
    return b'{"key":%b,"found":true,"value":%b}' % (shown, text)
