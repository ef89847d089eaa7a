"""What all routes share."""

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
    """Room for so many at the same time; others get 429."""

    def __init__(self, limit: int, what: str) -> None:
        self._free, self._what = limit, what

    @contextmanager
    def one(self) -> Iterator[None]:
        self.take()
        try:
            yield
        finally:
            self.give_back()

    def take(self) -> None:
        if self._free <= 0:
            raise Problem(429, "busy", f"there are as many {self._what} as there may be at the same time; come again")
        self._free -= 1

    def give_back(self) -> None:
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
    """Whether there are tokens."""
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    """The worker stops: streams end, and it is not ready any more."""


def _context(request: Request) -> ApiContext:
    return cast("ApiContext", request.app.state.context)


def _caller(request: Request) -> Principal:
    return cast("Principal", request.scope[PRINCIPAL])


def _may_read(request: Request) -> None:
    """Before anything else of the request is looked at."""
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
