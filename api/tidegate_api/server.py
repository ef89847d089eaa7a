"""The HTTP server of a worker: uvicorn in the worker's own event loop.

It listens before the worker opens its log: until the tasks are restored, requests get 503 with Retry-After. When the
worker stops, it accepts no more requests, completes the open ones and ends its streams; only then do the tasks close.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Iterator
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import uvicorn
from starlette.responses import Response
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tidegate.serving import WorkerFacade
from tidegate.settings import Settings
from tidegate_api.addresses import bind, split, url_of
from tidegate_api.application import make_application
from tidegate_api.context import ApiContext, Slots
from tidegate_api.forwarding import Peers
from tidegate_api.middleware import MAX_URL_BYTES
from tidegate_api.problems import problem
from tidegate_api.security import Security

if TYPE_CHECKING:
    from tidegate import App

__all__ = ("ApiServer", "listen", "listen_privately")

logger = logging.getLogger("tidegate.api")

SHUTDOWN_SECONDS: Final = 5
MAX_HEAD_BYTES: Final = 256 << 10
"""The limit of a request's line and headers."""
HEAD_SECONDS: Final = 20.0
"""How long a request's line and headers may take to arrive."""
MAX_CONNECTIONS: Final = 1000


def listen(settings: Settings, *, explicit: bool) -> socket.socket:
    """The public socket, for a worker or for all its processes. SettingsError: not allowed, or not possible."""
    host, _ = split(settings.api)
    Security(settings).check_bind(host, insecure=settings.api_insecure == "on")
    return bind(settings.api, explicit=explicit)


def listen_privately(settings: Settings, number: int) -> socket.socket:
    """A socket of one of several processes, at which other workers reach it."""
    host, _ = split(settings.api)
    port = 0
    if settings.advertise:
        port = split(settings.advertise)[1] + number
    return bind(f"{host}:{port}", explicit=True)


class ApiServer:
    """`public`: the socket for clients. `private`: with several processes that share it, the socket for other
    workers."""

    def __init__(
        self, app: App, settings: Settings, public: socket.socket, private: socket.socket | None = None
    ) -> None:
        self._app, self._settings = app, settings
        self._sockets = [public] if private is None else [public, private]
        host, _ = split(settings.api)
        tls = bool(settings.api_tls_cert)
        self.url = url_of(public, host, advertise="", tls=tls)
        """The URL to show to users."""
        advertised = settings.advertise
        if private is not None and advertised:
            advertised = f"{split(advertised)[0]}:{private.getsockname()[1]}"
        app.host.address = url_of(private or public, host, advertise=advertised, tls=tls)
        self._alone = private is None
        self._serving, security = WorkerFacade(app.host), Security(settings)
        self._context = ApiContext(
            app=app,
            serving=self._serving,
            settings=settings,
            peers=Peers(self._serving, settings),
            scans=Slots(settings.api_scans, "scans and batches"),
            watchers=Slots(settings.api_watchers, "watchers"),
            secured=security.enabled,
        )
        application = make_application(self._context, security)
        config = uvicorn.Config(
            application,
            http=_Protocol,
            ws="none",
            lifespan="off",
            loop="none",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            date_header=False,
            timeout_keep_alive=60,
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
            ssl_certfile=settings.api_tls_cert or None,
            ssl_keyfile=settings.api_tls_key or None,
        )
        self._server = _Server(config)
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._running = asyncio.create_task(self._server.serve(self._sockets), name="the HTTP API")
        while not self._server.started:
            if self._running.done():
                self._running.result()
                return
            await asyncio.sleep(0.005)

    def announce(self) -> None:
        """Log the URL; with several processes, their parent has logged it."""
        if self._alone:
            logger.info("dashboard and API at %s", self.url)

    def stop_soon(self) -> None:
        """Fail the readiness probe, and end the streams."""
        self._context.stopping.set()

    async def stop(self) -> None:
        self.stop_soon()
        self._server.should_exit = True
        if self._running is not None:
            await asyncio.gather(self._running, return_exceptions=True)
        await self._context.peers.close()
        await self._serving.close()


class _Protocol(HttpToolsProtocol):
    """Reports requests that cannot be parsed, such as URLs over 64 kB, as problem+json. And limits what a client can
    use before it is authenticated: the size of the headers, the time to send them, and the number of connections."""

    _head: asyncio.TimerHandle | None = None
    """Runs while the head of a request is awaited."""
    _head_bytes = 0
    _refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS:
            transport.close()
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._have_head()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return  # the client reads the response after it has sent its request
        super().data_received(data)
        if self._head is not None:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self._refused = True
                self._send(_too_large(self.url))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._expect_head()

    def on_headers_complete(self) -> None:
        self._have_head()
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        self._send(_too_large(self.url) if len(self.url) > MAX_URL_BYTES else problem(400, "bad-request", msg))
        self.transport.close()

    def _expect_head(self) -> None:
        if self._head is None:
            self._head = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _have_head(self) -> None:
        if self._head is not None:
            self._head.cancel()
        self._head, self._head_bytes = None, 0

    def _send(self, answer: Response) -> None:
        head = [f"HTTP/1.1 {answer.status_code} {HTTPStatus(answer.status_code).phrase}".encode()]
        head += [name + b": " + value for name, value in answer.raw_headers]
        self.transport.write(b"\r\n".join([*head, b"connection: close", b"", bytes(answer.body)]))


def _too_large(url: bytes) -> Response:
    if len(url) > MAX_URL_BYTES:
        return problem(414, "url-too-long", f"a URL may have {MAX_URL_BYTES:,} bytes; send long keys in a batch")
    return problem(431, "headers-too-large", f"the headers of a request may have {MAX_HEAD_BYTES:,} bytes")


class _Server(uvicorn.Server):
    """Leaves signal handling to the worker."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
