"""Forwards requests to the worker that owns a key, over one pooled client, with the workers' shared token.

1. Look up the owner of the task in the directory.
2. Send the request there, marked as forwarded: its receiver answers it, or refuses because it is not the owner (421).
3. If the worker does not respond or is not the owner, refresh the directory and retry, for a few seconds; then the
   client gets 503 with Retry-After.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import httpx
from starlette.requests import Request
from starlette.responses import Response

from tidegate.errors import NotReadyError, UsageError
from tidegate.serving import WorkerFacade
from tidegate.settings import Settings
from tidegate_api.problems import Problem

__all__ = ("FORWARDED", "TASKS", "Peers", "detail_of", "is_forwarded", "returned", "tasks_of")

FORWARDED: Final = "tidegate-forwarded"
TASKS: Final = "tidegate-tasks"
"""Header of a forwarded request: the tasks that it concerns."""
RETRY_SECONDS: Final = 3.0
"""How long a request to a task whose owner is unknown or unreachable is retried."""
_PAUSE: Final = 0.25
_STREAM_TIMEOUT: Final = 45.0
"""Seconds without an event or a ping after which a stream is considered broken."""
_FORWARDED_HEADERS: Final = ("accept", "content-type", "idempotency-key", "last-event-id")
_RETURNED_HEADERS: Final = (
    "content-type", "cache-control", "retry-after",
    "tidegate-position", "tidegate-watermark", "tidegate-checkpoint",
)  # fmt: skip


def is_forwarded(request: Request) -> bool:
    return FORWARDED in request.headers


def tasks_of(request: Request) -> list[int]:
    """The tasks that a forwarded request concerns."""
    try:
        return [int(number) for number in request.headers[TASKS].split(",")]
    except (KeyError, ValueError):
        raise UsageError(f"a forwarded request needs the header {TASKS}") from None


class Peers:
    def __init__(self, serving: WorkerFacade, settings: Settings) -> None:
        self._serving, self._token = serving, settings.api_peer_token
        self._seconds = settings.api_timeout
        self._ca = settings.api_tls_ca
        self._client: httpx.AsyncClient | None = None
        self._streams: httpx.AsyncClient | None = None

    async def close(self) -> None:
        for client in (self._client, self._streams):
            if client is not None:
                await client.aclose()

    async def owners(self, service: Any, numbers: Iterable[int]) -> tuple[list[int], dict[str, list[int]]]:
        """The local ones of these tasks, and the remote ones by address."""
        ours = set(self._serving.tasks.here(service))
        here, there = list[int](), defaultdict[str, list[int]](list)
        for number in numbers:
            if number in ours:
                here.append(number)
            else:
                there[(await self._serving.owner(service, number)).address].append(number)
        return here, dict(there)

    # -- one owner ---------------------------------------------------------------------------------------------------
    async def forward(self, request: Request, service: Any, number: int, body: bytes | None = None) -> Response:
        """The response of the task's owner."""
        return returned(await self.ask_owner(request, service, number, body))

    async def ask_owner(self, request: Request, service: Any, number: int, body: bytes | None = None) -> httpx.Response:
        if is_forwarded(request):
            raise Problem(421, "elsewhere", f"this worker does not own task {number} of {service.name}")
        deadline = asyncio.get_running_loop().time() + min(RETRY_SECONDS, self._seconds)
        while True:
            try:
                owner = await self._serving.owner(service, number)
                if owner.address == self._serving.address:
                    raise NotReadyError(f"{service.name}.{number}", "its state is being restored")
                answer = await self.ask(owner.address, request, body=body)
                if answer.status_code != 421:
                    return answer
                reason = "its owner is changing"
            except httpx.HTTPError as error:
                reason = f"its owner does not respond ({type(error).__name__})"
            except NotReadyError as error:
                reason = error.reason
            self._serving.invalidate_owners()
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
        tasks: Sequence[int] = (),
        body: bytes | None = None,
        seconds: float | None = None,
    ) -> httpx.Response:
        """Send the request, or a GET of `path`, to another worker."""
        return await self._pool().request(
            request.method if path is None else "GET",
            address + (path or _target(request)),
            content=body,
            headers=self._headers(request, tasks),
            timeout=httpx.Timeout(seconds or self._seconds, connect=2.0),
        )

    async def stream(self, address: str, request: Request, tasks: Sequence[int]) -> httpx.Response:
        """A streaming response. It uses a client of its own: streams would exhaust the connections of the pool."""
        if self._streams is None:
            self._streams = self._make(httpx.Limits(max_connections=None, max_keepalive_connections=0))
        headers, timeout = self._headers(request, tasks), httpx.Timeout(_STREAM_TIMEOUT, connect=2.0)
        sent = self._streams.build_request("GET", address + _target(request), headers=headers, timeout=timeout)
        return await self._streams.send(sent, stream=True)

    def _headers(self, request: Request, tasks: Sequence[int]) -> dict[str, str]:
        headers = {name: value for name in _FORWARDED_HEADERS if (value := request.headers.get(name)) is not None}
        headers[FORWARDED] = "1"
        if tasks:
            headers[TASKS] = ",".join(map(str, tasks))
        if self._token:
            headers["authorization"] = f"Bearer {self._token}"
        elif "authorization" in request.headers:
            headers["authorization"] = request.headers["authorization"]
        return headers

    def _pool(self) -> httpx.AsyncClient:
        if self._client is None:
            self._client = self._make(httpx.Limits(max_connections=200, max_keepalive_connections=50))
        return self._client

    def _make(self, limits: httpx.Limits) -> httpx.AsyncClient:
        verify: ssl.SSLContext | bool = ssl.create_default_context(cafile=self._ca) if self._ca else True
        return httpx.AsyncClient(verify=verify, limits=limits, trust_env=False)


def _target(request: Request) -> str:
    query = request.scope["query_string"].decode("latin-1")
    path: str = request.scope["raw_path"].decode("latin-1")
    return f"{path}?{query}" if query else path


def _headers_of(answer: httpx.Response) -> Mapping[str, str]:
    return {name: value for name in _RETURNED_HEADERS if (value := answer.headers.get(name)) is not None}


def returned(answer: httpx.Response) -> Response:
    return Response(answer.content, answer.status_code, _headers_of(answer))


def detail_of(answer: httpx.Response) -> str:
    """The `detail` of another worker's error response."""
    try:
        return str(answer.json()["detail"])
    except (ValueError, KeyError, TypeError):
        return f"status {answer.status_code}"
