"""The ASGI application: the guard middleware, point reads, FastAPI with its routes and its OpenAPI document."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.types import ASGIApp

import tidegate
from tidegate_api.context import Api, ApiContext, Caller
from tidegate_api.dashboard import router as dashboard
from tidegate_api.middleware import GuardMiddleware
from tidegate_api.openapi import document
from tidegate_api.point_reads import PointReads
from tidegate_api.problems import add_handlers
from tidegate_api.responses import json_answer
from tidegate_api.routes import actors, batches, changes, checkpoints, operations, services, states, topics
from tidegate_api.security import Security

__all__ = ("make_application",)


def make_application(context: ApiContext, security: Security) -> ASGIApp:
    app = FastAPI(
        title=context.app.define().id,
        version=tidegate.__version__,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.context = context
    add_handlers(app)
    for module in (services, states, batches, changes, actors, topics, checkpoints, operations):
        app.include_router(module.router)
    app.include_router(dashboard)
    _add_document(app)
    app.state.points = points = PointReads(app, context)
    guarded: ASGIApp = GuardMiddleware(points, context.settings, security)
    origins = [origin.strip() for origin in context.settings.api_cors.split(",") if origin.strip()]
    if origins:
        guarded = CORSMiddleware(
            guarded,
            allow_origins=origins,
            allow_methods=["GET", "POST"],
            allow_headers=["authorization", "content-type", "idempotency-key", "last-event-id"],
            expose_headers=["tidegate-position", "tidegate-watermark", "tidegate-checkpoint", "retry-after"],
            max_age=600,
        )
    return guarded


def _add_document(app: FastAPI) -> None:
    """The OpenAPI document needs a token, like every other route, if tokens are configured."""

    @app.get("/openapi.json", include_in_schema=False)
    async def openapi(api: Api, caller: Caller) -> Response:
        caller.require("ops")
        return json_answer(_document(app, api))

    @app.get("/docs", include_in_schema=False)
    async def docs(request: Request, caller: Caller) -> Response:
        """A self-contained page: the usual ones load scripts from other origins."""
        caller.require("ops")
        return HTMLResponse(_DOCS, headers={"content-security-policy": "default-src 'self'"})


def _document(app: FastAPI, context: ApiContext) -> dict[str, Any]:
    if app.openapi_schema is None:
        app.openapi_schema = document(app, context)
    return app.openapi_schema


_DOCS = """<!doctype html><meta charset="utf-8"><title>API</title>
<link rel="stylesheet" href="/assets/app.css"><main id="docs"></main>
<script src="/assets/docs.js" type="module"></script>"""
