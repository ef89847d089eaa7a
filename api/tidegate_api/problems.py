"""Errors as problem+json (RFC 9457)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

import orjson
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from tidegate.errors import (
    AskTimeoutError,
    CheckpointError,
    CheckpointNotFoundError,
    DataError,
    ElsewhereError,
    IdempotencyError,
    LogError,
    MessageFailedError,
    NotQueryableError,
    NotReadyError,
    PositionError,
    PositionNotReachedError,
    RejectedError,
    RequestConflictError,
    StorageFullError,
    StoreError,
    TidegateError,
    UnknownNameError,
    UsageError,
    ValueTooLargeError,
)

__all__ = ("MEDIA_TYPE", "Problem", "add_handlers", "problem", "problem_of")

logger = logging.getLogger("tidegate.api")

MEDIA_TYPE: Final = "application/problem+json"
RETRY_SECONDS: Final = "1"

_KINDS: Final[tuple[tuple[type[Exception], int, str], ...]] = (
    (UnknownNameError, 404, "not-found"),
    (CheckpointNotFoundError, 404, "not-found"),
    (NotQueryableError, 403, "not-queryable"),
    (RejectedError, 409, "rejected"),
    (IdempotencyError, 409, "idempotency-key-reused"),
    (AskTimeoutError, 504, "no-reply"),
    (MessageFailedError, 502, "message-failed"),
    (PositionError, 409, "position"),
    (PositionNotReachedError, 503, "position-not-reached"),
    (NotReadyError, 503, "not-ready"),
    (ElsewhereError, 421, "elsewhere"),
    (ValueTooLargeError, 422, "value-too-large"),
    (RequestConflictError, 409, "idempotency-key-reused"),
    (UsageError, 422, "invalid"),
    (DataError, 422, "invalid"),
    (StorageFullError, 507, "storage-full"),
    (StoreError, 503, "not-ready"),
    (LogError, 503, "log-unavailable"),
    (CheckpointError, 409, "checkpoint"),
)
"""By error class: status and kind. The first match applies."""


class Problem(Exception):
    """An error response, raised by a route."""

    def __init__(self, status: int, kind: str, detail: str, headers: Mapping[str, str] | None = None) -> None:
        self.status, self.kind, self.detail, self.headers = status, kind, detail, dict(headers or {})
        super().__init__(detail)


def problem(status: int, kind: str, detail: str, headers: Mapping[str, str] | None = None, **more: Any) -> Response:
    body = {
        "type": f"urn:tidegate:problem:{kind}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        **more,
    }
    sent = {"cache-control": "no-store", **(headers or {})}
    if status in (429, 503):
        sent.setdefault("retry-after", RETRY_SECONDS)
    return Response(orjson.dumps(body, default=str), status, sent, MEDIA_TYPE)


def problem_of(error: Exception) -> Response:
    """The error response for an exception."""
    if isinstance(error, Problem):
        return problem(error.status, error.kind, error.detail, error.headers)
    for kind, status, name in _KINDS:
        if isinstance(error, kind):
            return problem(status, name, str(error))
    if isinstance(error, RecursionError):
        return problem(422, "invalid", "the request is nested too deeply")
    logger.error("a request failed", exc_info=error)
    return problem(500, "internal", "internal error; see the worker's log")


def add_handlers(app: FastAPI) -> None:
    async def known(_: Request, error: Exception) -> Response:
        return problem_of(error)

    async def invalid(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)  # noqa: S101
        errors = [{"at": list(found["loc"]), "message": found["msg"]} for found in error.errors()]
        first = errors[0] if errors else {"at": [], "message": "the request is invalid"}
        where = ".".join(map(str, first["at"]))
        return problem(422, "invalid", f"{where}: {first['message']}", errors=errors)

    async def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)  # noqa: S101
        detail = f"no such path: {request.url.path}" if error.status_code == 404 else str(error.detail)
        return problem(error.status_code, _slug(error.status_code), detail, error.headers)

    for kind in (Problem, TidegateError, RecursionError, Exception):
        app.add_exception_handler(kind, known)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http)


def _slug(status: int) -> str:
    return HTTPStatus(status).phrase.lower().replace(" ", "-")
