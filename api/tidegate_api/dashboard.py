"""The dashboard: static files. They contain no data; the page requests it from the API."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Final

from fastapi import APIRouter
from starlette.responses import Response

from tidegate_api.problems import Problem

__all__ = ("router",)

router = APIRouter(include_in_schema=False)

_KINDS: Final = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_HEADERS: Final = {
    "cache-control": "no-cache",
    "content-security-policy": "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}


@cache
def _assets() -> dict[str, tuple[bytes, str]]:
    """All files, by name: no part of a URL is ever used as a path."""
    return {
        file.name: (file.read_bytes(), kind)
        for file in files("tidegate_api").joinpath("static").iterdir()
        if (kind := _KINDS.get("." + file.name.rpartition(".")[2])) is not None
    }


@router.get("/")
async def index() -> Response:
    return _asset("index.html")


@router.get("/favicon.ico")
async def icon() -> Response:
    return _asset("icon.svg")


@router.get("/assets/{name}")
async def asset(name: str) -> Response:
    return _asset(name)


def _asset(name: str) -> Response:
    found = _assets().get(name)
    if found is None:
        raise Problem(404, "not-found", "there is no such file")
    body, kind = found
    return Response(body, 200, _HEADERS, kind)
