"""What every request passes before a route sees it: who asks, how much, and how much at the same time.

1. A URL that is too long is refused, before it is looked at.
2. Without tokens, a request that a page of another origin may have caused is refused: its Host or Origin says so.
3. Who asks is found out; nobody gets further without a name, but to the probes and the dashboard's own files.
4. There is room for so many requests; others are told to come again. Streams of changes are counted by themselves.
5. A body may be so large, and the answer may take so long, unless it is a stream.
"""

from __future__ import annotations

import asyncio
from typing import Final
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidegate.settings import Settings
from tidegate_api.problems import Problem, problem, problem_of
from tidegate_api.security import Security, is_loopback

__all__ = ("MOST_URL", "PRINCIPAL", "Gatekeeper")

PRINCIPAL: Final = "tidegate.principal"
MOST_URL: Final = 8192
OPEN: Final = frozenset({"/", "/livez", "/readyz", "/favicon.ico"})
ASSETS: Final = "/assets/"


class Gatekeeper:
    def __init__(self, inner: ASGIApp, settings: Settings, security: Security) -> None:
        self._inner, self._security = inner, security
        self._most_bytes, self._seconds = settings.api_max_bytes, settings.api_timeout
        self._room = settings.api_concurrency
        self._guards_origin = not security.enabled and settings.api_insecure == "off"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # there are no websockets, and nothing to do at the start
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
                busy = "the worker answers as many requests as it may at the same time; come again"
                await problem(429, "busy", busy)(scope, receive, send)
            else:
                await self._answer(scope, receive, send)
        finally:
            self._room += 1

    # -- steps 1 to 3 ------------------------------------------------------------------------------------------------
    def _admit(self, scope: Scope) -> None:
        if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > MOST_URL:
            raise Problem(414, "url-too-long", f"a URL may have {MOST_URL:,} bytes; long keys can go in a batch")
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
            async with asyncio.timeout(self._seconds + 1):  # a second more than what a route waits for itself
                if scope["method"] != "GET":
                    receive = await _read_body(scope, receive, self._most_bytes)
                await self._inner(scope, receive, sending)
        except TimeoutError:
            if not begun:
                late = f"this took longer than {self._seconds:g} s (api_timeout)"
                await problem(503, "timeout", late)(scope, receive, send)
        except Problem as refused:
            if not begun:
                await problem_of(refused)(scope, receive, send)


def _is_stream(scope: Scope) -> bool:
    """As the routes have it, to the slash: a key may end in the same word, and must not escape the limits."""
    parts = scope["raw_path"].split(b"/", 7)
    if scope["method"] != "GET" or parts[-1] != b"watch" or parts[:3] != [b"", b"v1", b"services"]:
        return False
    return len(parts) == 5 or (len(parts) == 7 and parts[4] == b"states")


async def _read_body(scope: Scope, receive: Receive, max_bytes: int) -> Receive:
    """All of it, up to a size, before anybody looks at it; then whoever wants it gets it at once."""
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
    given = False

    async def give() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return whole

    return give


def _check_origin(host: bytes | None, origin: bytes | None) -> None:
    """A page from elsewhere can make a browser on this machine ask us. It cannot hide its name, though."""
    if not _is_local(b"//" + (host or b"")):
        raise Problem(421, "host", "without tokens only this machine is served, under localhost or 127.0.0.1")
    if origin is not None and not _is_local(origin):
        raise Problem(403, "origin", "without tokens no page of another origin is served")


def _is_local(url: bytes) -> bool:
    try:
        return is_loopback(urlsplit(url.decode("latin-1")).hostname or "")
    except ValueError:
        return False
