"""Workers, probes, metrics."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import msgspec
from fastapi import APIRouter
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import Response

from tidegate.serving import WorkerSummary
from tidegate_api.context import Api, ApiContext, Caller
from tidegate_api.forwarding import is_forwarded
from tidegate_api.models import WorkerList
from tidegate_api.problems import problem
from tidegate_api.responses import NO_STORE

__all__ = ("router",)

router = APIRouter(tags=["operations"])

_SECONDS = 2.0
"""The timeout for the status of another worker."""


@router.get("/v1/workers", response_model=WorkerList)
async def list_workers(request: Request, api: Api, caller: Caller) -> Response:
    """All workers of the app, with their tasks: state, lag, event time and counters."""
    caller.require("ops")
    own = api.serving.status()
    if is_forwarded(request):
        states = [own]
    else:
        others = [worker for worker in await api.serving.workers() if worker.address != own.address]
        states = [own, *await asyncio.gather(*(_ask(request, api, other) for other in others))]
    return Response(msgspec.json.encode({"workers": states}), 200, NO_STORE, "application/json")


async def _ask(request: Request, api: ApiContext, worker: Any) -> WorkerSummary:
    error = "it has no API"
    if worker.address:
        try:
            answer = await api.peers.ask(worker.address, request, seconds=_SECONDS)
            if answer.status_code == 200:
                return msgspec.json.decode(answer.content, type=_Workers).workers[0]
            error = f"it responded with status {answer.status_code}"
        except (httpx.HTTPError, msgspec.MsgspecError) as failure:
            error = f"it does not respond ({type(failure).__name__})"
    return WorkerSummary(
        name=worker.name, address=worker.address, ready=False, pid=0, started=0.0, now=0.0, error=error
    )


class _Workers(msgspec.Struct):
    workers: list[WorkerSummary]


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
async def metrics(api: Api, caller: Caller) -> Response:
    """The metrics of this worker process, for Prometheus."""
    caller.require("ops")
    return Response(generate_latest(api.serving.registry), 200, NO_STORE, CONTENT_TYPE_LATEST)


@router.get("/livez", include_in_schema=False)
async def live() -> Response:
    """Liveness: the event loop runs."""
    return Response("ok\n", 200, NO_STORE, "text/plain")


@router.get("/readyz", include_in_schema=False)
async def ready(api: Api) -> Response:
    """Readiness: the tasks are open, the group membership is confirmed, and the worker is not stopping."""
    if api.stopping.is_set() or not api.serving.ready:
        return problem(503, "not-ready", "the worker is starting, restoring or stopping, or lost its group membership")
    return Response("ok\n", 200, NO_STORE, "text/plain")
