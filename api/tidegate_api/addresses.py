"""The listening address of the API, and the address that it advertises."""

from __future__ import annotations

import errno
import socket
from typing import Final

from tidegate.errors import SettingsError
from tidegate_api.security import is_loopback

__all__ = ("bind", "split", "url_of")

TRIED_PORTS: Final = 100
"""How many ports above the default port are tried."""
_BACKLOG: Final = 1024
_EVERYWHERE: Final = ("0.0.0.0", "::", "*", "")  # noqa: S104


def split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def bind(address: str, *, explicit: bool) -> socket.socket:
    """Listen at the address. If it was not given explicitly and its port is taken, use the next free port, so that two
    workers on one machine both start."""
    host, port = split(address)
    last = port if explicit or port == 0 else min(port + TRIED_PORTS, 65535)
    for candidate in range(port, last + 1):
        try:
            return _listen(host, candidate)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or (candidate == last and not explicit):
                raise SettingsError(f"the API cannot listen at {address}: {error.strerror or error} (--api)") from error
    raise SettingsError(
        f"the API cannot listen at {address}: another process does. Stop that process, choose another address "
        f"(--api HOST:PORT, port 0 for any), or disable the API (--no-api)."
    )


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, socket_address = socket.getaddrinfo(
            host if host != "*" else None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise SettingsError(f"the API cannot listen at {host}: {error.strerror} (--api)") from error
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(socket_address)
        listening.listen(_BACKLOG)
        listening.setblocking(False)
    except BaseException:
        listening.close()
        raise
    return listening


def url_of(listening: socket.socket, host: str, *, advertise: str, tls: bool) -> str:
    """The URL at which other machines reach this socket."""
    port = listening.getsockname()[1]
    if advertise:
        host, given = split(advertise)
        port = given or port
    elif host in _EVERYWHERE:
        host = socket.gethostname()
    elif is_loopback(host) and ":" not in host:
        host = "127.0.0.1" if host == "localhost" else host
    shown = f"[{host}]" if ":" in host else host
    return f"{'https' if tls else 'http'}://{shown}:{port}"
