"""The dependencies that all routes share: the API's context, the caller, scopes, concurrency limits."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, cast

from fastapi import Depends
from starlette.requests import Request

from tidegate.serving import WorkerFacade
from tidegate.settings import Settings
from tidegate_api.forwarding import Peers
from tidegate_api.middleware import PRINCIPAL
from tidegate_api.problems import Problem
from tidegate_api.security import Principal

if TYPE_CHECKING:
    from tidegate import App

__all__ = ("MAY_OPERATE", "MAY_READ", "MAY_SEND", "Api", "ApiContext", "Caller", "Slots")


class Slots:
    """A concurrency limit; requests beyond it get 429."""

    def __init__(self, limit: int, what: str) -> None:
        self._free, self._what = limit, what

    @contextmanager
    def one(self) -> Iterator[None]:
        self.acquire()
        try:
            yield
        finally:
            self.release()

    def acquire(self) -> None:
        if self._free <= 0:
            raise Problem(429, "busy", f"the limit of concurrent {self._what} is reached; retry")
        self._free -= 1

    def release(self) -> None:
        self._free += 1


@dataclass(kw_only=True)
class ApiContext:
    app: App
    serving: WorkerFacade
    settings: Settings
    peers: Peers
    scans: Slots
    watchers: Slots
    secured: bool
    """Whether tokens are configured."""
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the worker stops: streams end, and the readiness probe fails."""


def _context(request: Request) -> ApiContext:
    return cast("ApiContext", request.app.state.context)


def _caller(request: Request) -> Principal:
    return cast("Principal", request.scope[PRINCIPAL])


def _may_read(request: Request) -> None:
    """A dependency, so that the scope is checked before the request is validated."""
    _caller(request).require(f"state:read:{request.path_params['service']}")


def _may_send(request: Request) -> None:
    _caller(request).require(f"actor:send:{request.path_params['service']}")


def _may_operate(request: Request) -> None:
    _caller(request).require("ops")


MAY_READ = [Depends(_may_read)]
MAY_SEND = [Depends(_may_send)]
MAY_OPERATE = [Depends(_may_operate)]
Api = Annotated[ApiContext, Depends(_context)]
Caller = Annotated[Principal, Depends(_caller)]
