"""The guard middleware: authentication and limits that every request passes before its route.

1. Reject a URL that is too long, before it is parsed.
2. Without tokens, reject requests that a page of another origin may have sent, by their Host and Origin headers.
3. Authenticate the caller. Only the probes and the dashboard's own files need no authentication.
4. Limit the concurrent requests; further ones get 429. Change streams have a limit of their own.
5. Limit the size of the body and the time of the response, except for streams.
"""

from __future__ import annotations

import asyncio
from typing import Final
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidegate.settings import Settings
from tidegate_api.problems import Problem, problem, problem_of
from tidegate_api.security import Security, is_loopback

__all__ = ("MAX_URL_BYTES", "PRINCIPAL", "GuardMiddleware")

PRINCIPAL: Final = "tidegate.principal"
MAX_URL_BYTES: Final = 8192
OPEN: Final = frozenset({"/", "/livez", "/readyz", "/favicon.ico"})
ASSETS: Final = "/assets/"


class GuardMiddleware:
    def __init__(self, inner: ASGIApp, settings: Settings, security: Security) -> None:
        self._inner, self._security = inner, security
        self._most_bytes, self._seconds = settings.api_max_bytes, settings.api_timeout
        self._room = settings.api_concurrency
        self._guards_origin = not security.enabled and settings.api_insecure == "off"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # no websockets, and no lifespan events
        try:
            self._admit(scope)
        except Problem as refused:
            await problem_of(refused)(scope, receive, send)
            return
        if scope["path"] in OPEN or _is_stream(scope):
            await self._inner(scope, receive, send)
            return
        self._room -= 1
        try:
            if self._room < 0:
                busy = "the limit of concurrent requests is reached; retry"
                await problem(429, "busy", busy)(scope, receive, send)
            else:
                await self._answer(scope, receive, send)
        finally:
            self._room += 1

    # -- steps 1 to 3 ------------------------------------------------------------------------------------------------
    def _admit(self, scope: Scope) -> None:
        if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > MAX_URL_BYTES:
            raise Problem(414, "url-too-long", f"a URL may have {MAX_URL_BYTES:,} bytes; send long keys in a batch")
        authorization = host = origin = None
        for name, value in scope["headers"]:
            if name == b"authorization":
                authorization = value
            elif name == b"host":
                host = value
            elif name == b"origin":
                origin = value
        if self._guards_origin:
            _check_origin(host, origin)
        path = scope["path"]
        if path not in OPEN and not path.startswith(ASSETS):
            scope[PRINCIPAL] = self._security.principal(authorization)

    # -- step 5 ------------------------------------------------------------------------------------------------------
    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def sending(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            async with asyncio.timeout(self._seconds + 1):  # a second more than the routes' own timeouts
                if scope["method"] != "GET":
                    receive = await _read_body(scope, receive, self._most_bytes)
                await self._inner(scope, receive, sending)
        except TimeoutError:
            if not begun:
                late = f"the request took longer than {self._seconds:g} s (api_timeout)"
                await problem(503, "timeout", late)(scope, receive, send)
        except Problem as refused:
            if not begun:
                await problem_of(refused)(scope, receive, send)


def _is_stream(scope: Scope) -> bool:
    """Matches the routes exactly: a key that ends in the same word must not escape the limits."""
    parts = scope["raw_path"].split(b"/", 7)
    if scope["method"] != "GET" or parts[-1] != b"watch" or parts[:3] != [b"", b"v1", b"services"]:
        return False
    return len(parts) == 5 or (len(parts) == 7 and parts[4] == b"states")


async def _read_body(scope: Scope, receive: Receive, max_bytes: int) -> Receive:
    """Read the body up to the limit before the route runs. Returns a `receive` that replays it."""
    too_large = Problem(413, "too-large", f"a body may have {max_bytes:,} bytes (api_max_bytes)")
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit() and int(value) > max_bytes:
            raise too_large
    chunks, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            break
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
        more = message.get("more_body", False)
        if size > max_bytes:
            raise too_large
    whole: Message = {"type": "http.request", "body": b"".join(chunks), "more_body": False}
    replayed = False

    async def replay() -> Message:
        nonlocal replayed
        if replayed:
            return await receive()
        replayed = True
        return whole

    return replay


def _check_origin(host: bytes | None, origin: bytes | None) -> None:
    """A page of another origin can make a local browser send requests here, but it cannot forge Host and Origin."""
    if not _is_local(b"//" + (host or b"")):
        raise Problem(421, "host", "without tokens only local requests are served, at localhost or 127.0.0.1")
    if origin is not None and not _is_local(origin):
        raise Problem(403, "origin", "without tokens requests of pages of other origins are rejected")


def _is_local(url: bytes) -> bool:
    try:
        return is_loopback(urlsplit(url.decode("latin-1")).hostname or "")
    except ValueError:
        return False
