"""Change streams as server-sent events, over local tasks and those of other workers.

1. A stream has one part per worker that owns some of its tasks. All parts are opened before the stream begins, with
   retries during a rebalance: a browser's EventSource does not reconnect after an error status.
2. A part sends `ready`, or a first `value`, once it is subscribed; the stream sends `ready` when all parts have. From
   then on no change is missing.
3. Changes are forwarded as they arrive: those of one task in commit order.
4. When a part ends, or a task moves to another worker, the stream sends `end` and closes. A client that reconnects
   gets a stream from the new owners.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from typing import Any, Final

import anyio
import httpx
import orjson
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tidegate.errors import ElsewhereError, NotReadyError, ValueTooLargeError
from tidegate.serving import KeyChange, QueryableState, wait_for_changes
from tidegate_api.context import ApiContext
from tidegate_api.forwarding import detail_of, is_forwarded, tasks_of
from tidegate_api.problems import Problem
from tidegate_api.responses import key_text, position_headers

__all__ = ("Watched", "open_stream")

PING_SECONDS: Final = 15
OWNER_CHECK_SECONDS: Final = 1.0
"""How often a stream checks whether its tasks still have the same owners."""
_PAUSE: Final = 0.25
_RETRY_MS: Final = 1000
_BUFFER: Final = 100
"""Buffered events of other workers. When it is full, backpressure makes those workers buffer, and report a gap."""
_READY: Final = b"event: ready\n"
_END: Final = b"event: end\n"


@dataclass(frozen=True, kw_only=True)
class Watched:
    """The subject of a stream: states of a service, for one key or for keys with a prefix."""

    states: Sequence[QueryableState]
    key: bytes | None = None
    """None: all keys."""
    prefix: bytes = b""
    named: bool = False
    """Each event names its state."""

    @property
    def service(self) -> Any:
        return self.states[0].service

    @property
    def numbers(self) -> Sequence[int]:
        """The tasks of the stream."""
        return range(self.service.tasks) if self.key is None else [self.states[0].task_of(self.key)]


@dataclass(frozen=True, kw_only=True)
class _Owners:
    """The owners of a stream's tasks."""

    here: list[int]
    there: Mapping[str, list[int]]
    """By address."""


async def open_stream(request: Request, api: ApiContext, watched: Watched) -> Response:
    async with AsyncExitStack() as opening:
        opening.enter_context(api.watchers.one())
        if is_forwarded(request):
            events = _local_events(api, watched, _check_local(api, watched, tasks_of(request)))
        else:
            owners, answers = await _open_with_retries(request, api, watched, opening)
            parts = [_remote_events(answer) for answer in answers]
            if owners.here:
                parts.append(_local_events(api, watched, owners.here))
            events = _merged(api, watched, owners, parts) if answers else parts[0]
        return _Stream(events, opening.pop_all())


class _Stream(EventSourceResponse):
    """Releases its resources when it ends, even if it ends before its first event."""

    def __init__(self, events: AsyncIterator[bytes], used: AsyncExitStack) -> None:
        never = anyio.Event()  # the stream watches the worker's own stop event
        super().__init__(events, ping=PING_SECONDS, sep="\n", shutdown_event=never)
        self._used = used

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._used:
            await super().__call__(scope, receive, send)


# ----------------------------------------------------------------------------------------------------------- opening


async def _open_with_retries(
    request: Request, api: ApiContext, watched: Watched, opening: AsyncExitStack
) -> tuple[_Owners, list[httpx.Response]]:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + api.settings.api_timeout
    while True:
        try:
            async with AsyncExitStack() as trying:
                found = await _open(request, api, watched, trying)
                await opening.enter_async_context(trying.pop_all())
                return found
        except NotReadyError:
            api.serving.invalidate_owners()
            if loop.time() + _PAUSE >= deadline or api.stopping.is_set():
                raise
        await asyncio.sleep(_PAUSE)


async def _open(
    request: Request, api: ApiContext, watched: Watched, opening: AsyncExitStack
) -> tuple[_Owners, list[httpx.Response]]:
    """One attempt of step 1."""
    here, there = await api.peers.owners(watched.service, watched.numbers)
    _check_local(api, watched, here)
    answers = []
    for address, numbers in there.items():
        try:
            answer = await api.peers.stream(address, request, numbers)
        except httpx.HTTPError as error:
            raise NotReadyError(
                _named(watched, numbers), f"its worker does not answer ({type(error).__name__})"
            ) from error
        opening.push_async_callback(answer.aclose)
        if answer.status_code != 200:
            await answer.aread()
            if answer.status_code not in (421, 503):
                raise Problem(answer.status_code, "refused", f"the worker at {address} replied: {detail_of(answer)}")
            raise NotReadyError(_named(watched, numbers), detail_of(answer))
        answers.append(answer)
    return _Owners(here=here, there=there), answers


def _check_local(api: ApiContext, watched: Watched, numbers: list[int]) -> list[int]:
    for number in numbers:
        api.serving.tasks.task(watched.service, number)
    return numbers


def _named(watched: Watched, numbers: Sequence[int]) -> str:
    return ", ".join(f"{watched.service.name}.{number}" for number in numbers)


# ---------------------------------------------------------------------------------------------------- several workers


async def _merged(
    api: ApiContext, watched: Watched, owners: _Owners, parts: Sequence[AsyncIterator[bytes]]
) -> AsyncIterator[bytes]:
    """Steps 2 to 4."""
    events: asyncio.Queue[bytes] = asyncio.Queue(_BUFFER)
    pumps = [asyncio.create_task(_pump(part, events), name="a part of a stream") for part in parts]
    silent = len(pumps)
    try:
        while not api.stopping.is_set() and await _same_owners(api, watched, owners):
            until = asyncio.get_running_loop().time() + OWNER_CHECK_SECONDS
            async for event in _until(events, until):
                if event.startswith(_END):
                    yield event
                    return
                silent -= event.startswith(_READY)
                if silent == 0 or not event.startswith(_READY):
                    yield event
        yield _end("its tasks have moved")
    finally:
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)


async def _pump(part: AsyncIterator[bytes], events: asyncio.Queue[bytes]) -> None:
    async for event in part:
        await events.put(event)


async def _until(events: asyncio.Queue[bytes], deadline: float) -> AsyncIterator[bytes]:
    """The events that arrive before the deadline."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            async with asyncio.timeout_at(deadline):
                event = await events.get()
        except TimeoutError:
            return
        yield event
        if loop.time() >= deadline:
            return


async def _same_owners(api: ApiContext, watched: Watched, owners: _Owners) -> bool:
    try:
        here, there = await api.peers.owners(watched.service, watched.numbers)
    except NotReadyError:
        return False
    return api.serving.ready and (here, there) == (owners.here, owners.there)


async def _remote_events(answer: httpx.Response) -> AsyncIterator[bytes]:
    """The events of another worker; pings are dropped."""
    text = b""
    try:
        async for chunk in answer.aiter_raw():
            *events, text = (text + chunk).split(b"\n\n")
            for event in events:
                if not event.startswith(b":"):
                    yield event + b"\n\n"
    except httpx.HTTPError as error:
        yield _end(f"a worker of this stream does not respond ({type(error).__name__})")
    else:
        yield _end("a worker of this stream has ended its part")


# ---------------------------------------------------------------------------------------------------------- one worker


async def _local_events(api: ApiContext, watched: Watched, numbers: list[int]) -> AsyncIterator[bytes]:
    news, max_bytes = asyncio.Event(), api.settings.api_max_bytes
    with ExitStack() as watching:
        watchers = [
            (
                state,
                watching.enter_context(
                    api.serving.watch(
                        state, numbers, key=watched.key, prefix=watched.prefix, max_bytes=max_bytes, news=news
                    )
                ),
            )
            for state in watched.states
        ]
        try:
            firsts = list(_first_events(api, watched))
        except (ElsewhereError, NotReadyError):
            yield _end("its tasks have moved")
            return
        for first in firsts:
            yield first
        while not api.stopping.is_set() and _still_local(api, watched, numbers):
            news.clear()
            for state, watcher in watchers:
                for changed in watcher.take():
                    yield _change(state, changed, watched.named)
            await wait_for_changes(news, OWNER_CHECK_SECONDS)
    yield _end("the worker is stopping" if api.stopping.is_set() else "its tasks have moved")


def _still_local(api: ApiContext, watched: Watched, numbers: list[int]) -> bool:
    try:
        _check_local(api, watched, numbers)
    except (ElsewhereError, NotReadyError):
        return False
    return True


# -------------------------------------------------------------------------------------------------------------- events


def _first_events(api: ApiContext, watched: Watched) -> Iterator[bytes]:
    if watched.key is None:
        yield _event("ready", b"{}")
        return
    for state in watched.states:
        shown, name = key_text(watched.key, state.service.key_type), _name(state, watched.named)
        try:
            text, reached = api.serving.read(state, watched.key, max_bytes=api.settings.api_max_bytes)
        except ValueTooLargeError:
            yield _event("value", b'{%b"key":%b,"value":null,"truncated":true}' % (name, shown))
            continue
        body = b'{%b"key":%b,"value":%b}' % (name, shown, text or b"null")
        yield _event("value", body, position_headers([reached])["tidegate-position"])


def _change(state: QueryableState, changed: KeyChange | None, named: bool) -> bytes:
    if changed is None:
        return _event("missed", b"{}")
    shown = key_text(changed.key, state.service.key_type)
    what = b"entries" if changed.entries is not None else b"value"
    value = changed.entries or changed.value or b"null"
    more = b',"truncated":true' if changed.large else b""
    body = b'{%b"key":%b,"%b":%b%b}' % (_name(state, named), shown, what, value, more)
    return _event("change", body, str(changed.position))


def _end(reason: str) -> bytes:
    return _event("end", orjson.dumps({"reason": f"{reason}; connect again"}))


def _event(kind: str, body: bytes, id_: str | None = None) -> bytes:
    retry = _RETRY_MS if kind in ("ready", "value", "end") else None
    return ServerSentEvent(body.decode(), event=kind, id=id_, retry=retry, sep="\n").encode()


def _name(state: QueryableState, named: bool) -> bytes:
    return b'"state":%b,' % orjson.dumps(state.declaration.name) if named else b""
