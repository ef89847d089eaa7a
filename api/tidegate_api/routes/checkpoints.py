"""Checkpoints and savepoints: listing them, and taking one now."""

from __future__ import annotations

from collections.abc import Awaitable

import msgspec
from fastapi import APIRouter
from starlette.responses import Response

from tidegate.errors import CheckpointStorageError, NotReadyError
from tidegate.serving import Checkpoint
from tidegate_api.context import MAY_OPERATE, Api, ApiContext
from tidegate_api.models import CheckpointList, SavepointRequest, Taken
from tidegate_api.responses import NO_STORE, json_answer

__all__ = ("router",)

router = APIRouter(tags=["checkpoints"], dependencies=MAY_OPERATE)


@router.get("/v1/checkpoints", response_model=CheckpointList)
async def list_checkpoints(api: Api) -> Response:
    """The complete checkpoints, newest first, and the one in progress."""
    _require_running(api)
    return await _listed(api, api.serving.history.checkpoints())


@router.get("/v1/savepoints", response_model=CheckpointList)
async def list_savepoints(api: Api) -> Response:
    """The savepoints, newest first."""
    _require_running(api)
    return await _listed(api, api.serving.history.savepoints())


@router.post("/v1/checkpoints", response_model=Taken, responses={202: {"model": Taken}})
async def take_checkpoint(api: Api) -> Response:
    """Take a checkpoint now. 202: it is not complete yet, and continues."""
    _require_running(api)
    return await _take(api, None)


@router.post("/v1/savepoints", response_model=Taken, responses={202: {"model": Taken}})
async def take_savepoint(api: Api, savepoint: SavepointRequest) -> Response:
    """Take a savepoint now; it is kept until it is deleted. 202: it is not complete yet, and continues."""
    _require_running(api)
    return await _take(api, savepoint.name)


def _require_running(api: ApiContext) -> None:
    if not api.serving.started:
        raise NotReadyError("the app's checkpoints", "the worker is starting or stopping")


async def _listed(api: ApiContext, listing: Awaitable[list[Checkpoint]]) -> Response:
    """The progress comes from the log, so it is available even if the storage does not respond."""
    found: list[Checkpoint] = []
    error = ""
    try:
        found = await listing
    except CheckpointStorageError as failure:
        error = str(failure)
    body = {"progress": api.serving.history.progress, "checkpoints": found, "error": error}
    return Response(msgspec.json.encode(body), 200, NO_STORE, "application/json")


async def _take(api: ApiContext, name: str | None) -> Response:
    epoch = await api.serving.history.take(name, api.settings.api_timeout)
    return json_answer({"epoch": epoch, "complete": epoch is not None}, 202 if epoch is None else 200)
