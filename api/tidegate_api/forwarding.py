"""Asking the worker that owns a key, over one pooled client, with the credential that workers share.

1. The directory says who owns the task.
2. The request goes there, marked as forwarded: whoever gets it answers itself, or says that it is not the owner (421).
3. A worker that does not answer, or is not the owner, is a reason to ask the directory anew, a few times; then whoever
   has asked is told to come again.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from typing import Any, Final

import httpx
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from tidegate.errors import NotReadyError
from tidegate.serving import Serving
from tidegate.settings import Settings
from tidegate_api.problems import Problem

__all__ = ("FORWARDED", "TASKS", "Peers", "detail_of", "is_forwarded")

FORWARDED: Final = "tidegate-forwarded"
TASKS: Final = "tidegate-tasks"
"""Of a forwarded request: the tasks that it is about."""
PATIENCE: Final = 3.0
_PAUSE: Final = 0.25
_PASSED_ON: Final = ("accept", "content-type", "idempotency-key", "last-event-id")
_RETURNED: Final = (
    "content-type", "cache-control", "retry-after",
    "tidegate-position", "tidegate-watermark", "tidegate-checkpoint",
)  # fmt: skip


def is_forwarded(request: Request) -> bool:
    return FORWARDED in request.headers


class Peers:
    def __init__(self, serving: Serving, settings: Settings) -> None:
        self._serving, self._token = serving, settings.api_peer_token
        self._seconds = settings.api_timeout
        self._ca = settings.api_tls_ca
        self._client: httpx.AsyncClient | None = None

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()

    # -- one owner ---------------------------------------------------------------------------------------------------
    async def forward(self, request: Request, service: Any, number: int, body: bytes | None = None) -> Response:
        """Let the owner of the task answer."""
        return _returned(await self.ask_owner(request, service, number, body))

    async def ask_owner(self, request: Request, service: Any, number: int, body: bytes | None = None) -> httpx.Response:
        if is_forwarded(request):
            raise Problem(421, "elsewhere", f"task {number} of {service.name} is not here")
        deadline = asyncio.get_running_loop().time() + min(PATIENCE, self._seconds)
        while True:
            try:
                owner = await self._serving.owner(service, number)
                if owner.address == self._serving.address:
                    raise NotReadyError(f"{service.name}.{number}", "its state is being restored")
                answer = await self.ask(owner.address, request, body=body)
                if answer.status_code != 421:
                    return answer
                reason = "its owner changes"
            except httpx.HTTPError as error:
                reason = f"its owner does not answer ({type(error).__name__})"
            except NotReadyError as error:
                reason = error.reason
            self._serving.doubt()
            if asyncio.get_running_loop().time() + _PAUSE >= deadline:
                raise NotReadyError(f"{service.name}.{number}", reason)
            await asyncio.sleep(_PAUSE)

    # -- any worker --------------------------------------------------------------------------------------------------
    async def ask(
        self,
        address: str,
        request: Request,
        *,
        path: str | None = None,
        tasks: str = "",
        body: bytes | None = None,
        seconds: float | None = None,
    ) -> httpx.Response:
        """The same request, or another path, at another worker."""
        return await self._pool().request(
            request.method if path is None else "GET",
            address + (path or _target(request)),
            content=body,
            headers=self._headers(request, tasks),
            timeout=httpx.Timeout(seconds or self._seconds, connect=2.0),
        )

    async def stream(self, address: str, request: Request, tasks: str = "") -> StreamingResponse:
        """An answer that goes on."""
        client = self._pool()
        sent = client.build_request(
            "GET",
            address + _target(request),
            headers=self._headers(request, tasks),
            timeout=httpx.Timeout(None, connect=2.0),
        )
        answer = await client.send(sent, stream=True)
        if answer.status_code != 200:
            await answer.aread()
            return _returned(answer)  # type: ignore[return-value]

        async def chunks() -> Any:
            try:
                async for chunk in answer.aiter_raw():
                    yield chunk
            except httpx.HTTPError:
                return  # the owner is gone: the stream ends, and whoever reads it asks anew
            finally:
                await answer.aclose()

        return StreamingResponse(chunks(), 200, _headers_of(answer))

    def _headers(self, request: Request, tasks: str) -> dict[str, str]:
        headers = {name: value for name in _PASSED_ON if (value := request.headers.get(name)) is not None}
        headers[FORWARDED] = "1"
        if tasks:
            headers[TASKS] = tasks
        if self._token:
            headers["authorization"] = f"Bearer {self._token}"
        elif "authorization" in request.headers:
            headers["authorization"] = request.headers["authorization"]
        return headers

    def _pool(self) -> httpx.AsyncClient:
        if self._client is None:
            verify: ssl.SSLContext | bool = ssl.create_default_context(cafile=self._ca) if self._ca else True
            limits = httpx.Limits(max_connections=200, max_keepalive_connections=50)
            self._client = httpx.AsyncClient(verify=verify, limits=limits, trust_env=False)
        return self._client


def _target(request: Request) -> str:
    query = request.scope["query_string"].decode("latin-1")
    path: str = request.scope["raw_path"].decode("latin-1")
    return f"{path}?{query}" if query else path


def _headers_of(answer: httpx.Response) -> Mapping[str, str]:
    return {name: value for name in _RETURNED if (value := answer.headers.get(name)) is not None}


def _returned(answer: httpx.Response) -> Response:
    return Response(answer.content, answer.status_code, _headers_of(answer))


def detail_of(answer: httpx.Response) -> str:
    """What another worker says about its refusal."""
    try:
        return str(answer.json()["detail"])
    except (ValueError, KeyError, TypeError):
        return f"status {answer.status_code}"
