"""The most frequent request: the value of a key.

It is answered before FastAPI's routing and validation, which cost more than the read itself: 2.3 thousand requests per
second and core against 4 or more. The route is also registered with FastAPI, for the document and for other methods,
and calls the same function.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qs, unquote_to_bytes

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from tidegate.errors import ElsewhereError, PositionError, UsageError
from tidegate.serving import QueryableState, parse_key, parse_position
from tidegate_api.context import ApiContext
from tidegate_api.middleware import PRINCIPAL
from tidegate_api.problems import Problem, problem_of
from tidegate_api.responses import key_text, past_headers, position_headers

__all__ = ("AS_OF", "AS_OF_ALONE", "PointReads", "key_in_body", "key_in_path", "no_such_path")

_PREFIX: Final = "/v1/services/"
_KNOWN: Final = frozenset({"at", "min_position", "as_of"})
AS_OF: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
AS_OF_ALONE: Final = "as_of and min_position exclude each other: a checkpoint never includes later commits"
_AS_OF: Final = re.compile(AS_OF, re.ASCII)


class PointReads:
    def __init__(self, inner: ASGIApp, context: ApiContext) -> None:
        self._inner, self._context = inner, context

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "GET" and scope["path"].startswith(_PREFIX):
            parts = scope["raw_path"].split(b"/", 7)
            if len(parts) == 8 and parts[6] == b"keys" and parts[4] == b"states":
                request = Request(scope, receive)
                try:
                    answer = await self.answer(request, parts)
                except Exception as error:
                    answer = problem_of(error)
                await answer(scope, receive, send)
                return
        await self._inner(scope, receive, send)

    async def answer(self, request: Request, parts: list[bytes]) -> Response:
        """`parts`: the path, split at its first seven slashes; the rest is the key."""
        if len(parts) < 8:
            raise no_such_path()
        service, name = _text(parts[3]), _text(parts[5])
        request.scope[PRINCIPAL].require(f"state:read:{service}")
        query = _query(request.scope["query_string"])
        context, serving = self._context, self._context.serving
        state = serving.state(service, name)
        key = key_in_path(parts[7], state.service.key_type)
        max_bytes = context.settings.api_max_bytes
        if "as_of" in query:
            as_of = _as_of(query)
            with context.scans.one():
                text, past = await serving.read_past(as_of, state, key, at=query.get("at"), max_bytes=max_bytes)
            return _answer(state, key, query, text, past_headers(past))
        try:
            if "min_position" in query:
                wanted = parse_position(query["min_position"])
                await serving.wait(state.service, state.task_of(key), wanted, context.settings.api_timeout)
            text, reached = serving.read(state, key, at=query.get("at"), max_bytes=max_bytes)
        except ElsewhereError as elsewhere:
            return await context.peers.forward(request, state.service, elsewhere.task)
        return _answer(state, key, query, text, position_headers([reached]))


def no_such_path() -> Problem:
    """For a path with percent-encoded slashes outside of the key."""
    return Problem(404, "not-found", "no such path; percent-encode slashes in keys only")


def _as_of(query: Mapping[str, str]) -> str:
    if "min_position" in query:
        raise PositionError(AS_OF_ALONE)
    if not _AS_OF.fullmatch(query["as_of"]):
        raise UsageError(f"as_of={query['as_of']!r}: give the number of a checkpoint, or the name of a savepoint")
    return query["as_of"]


def _answer(
    state: QueryableState, key: bytes, query: Mapping[str, str], text: bytes | None, headers: Mapping[str, str]
) -> Response:
    shown = key_text(key, state.service.key_type)
    if text is None:
        what = f"no entry {query['at']!r}" if "at" in query else "no value"
        missing = f"{state.service.name}.{state.declaration.name} has {what} for the key {shown.decode()}"
        return problem_of(Problem(404, "no-value", missing, headers))
    return Response(b'{"key":%b,"value":%b}' % (shown, text), 200, headers, "application/json")


def key_in_path(raw: bytes, key_type: Any) -> bytes:
    """A key from a path: percent-encoded; a str as it is, any other type as JSON."""
    decoded = unquote_to_bytes(raw)
    if key_type is bytes:
        return decoded
    try:
        return parse_key(decoded.decode(), key_type)
    except UnicodeDecodeError:
        raise UsageError("the key in the path is not UTF-8") from None


def key_in_body(key: Any, key_type: Any) -> bytes:
    """A key from a body: JSON; an int may be given as text, bytes as {"base64": ...}."""
    if isinstance(key, dict) and key.keys() == {"base64"} and isinstance(key["base64"], str):
        try:
            return base64.b64decode(key["base64"], validate=True)
        except (binascii.Error, ValueError):
            raise UsageError(f"{key!r} is not base64") from None
    if key_type in (str, bytes):
        if not isinstance(key, str):
            raise UsageError(f"{key!r} is not a valid key: keys are text")
        return parse_key(key, key_type)
    digits = key_type is int and isinstance(key, str)
    return parse_key(key if digits else json.dumps(key), key_type)


def _text(raw: bytes) -> str:
    return unquote_to_bytes(raw).decode(errors="replace")


def _query(raw: bytes) -> dict[str, str]:
    if not raw:
        return {}
    try:
        found = parse_qs(raw.decode("ascii"), keep_blank_values=True, max_num_fields=10)
    except (ValueError, UnicodeDecodeError):
        raise UsageError("the query string of the URL is invalid") from None
    for name in found.keys() - _KNOWN:
        raise UsageError(f"unknown parameter {name!r}; known: {', '.join(sorted(_KNOWN))}")
    return {name: values[-1] for name, values in found.items()}
