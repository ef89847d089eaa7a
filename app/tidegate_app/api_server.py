"""The API of a worker: whether it has one, and on which sockets it listens."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from tidegate.settings import Settings
from tidegate.settings_resolution import Resolved
from tidegate_app.parent_link import Leash

if TYPE_CHECKING:
    from tidegate.app import App
    from tidegate_api.server import ApiServer

__all__ = ("has_api", "open_api", "open_socket", "public_url")


def has_api(resolved: Resolved, *, until_end: bool) -> bool:
    """A bounded run has one only if somebody asks for it."""
    if resolved.settings.api in ("", "off"):
        return False
    return not until_end or resolved.sources["api"] != "default"


def open_socket(resolved: Resolved) -> socket.socket:
    """The public one."""
    from tidegate_api.server import listen

    return listen(resolved.settings, explicit=resolved.sources["api"] != "default")


def public_url(settings: Settings, public: socket.socket) -> str:
    from tidegate_api.addresses import split, url_of

    return url_of(public, split(settings.api)[0], advertise="", tls=bool(settings.api_tls_cert))


def open_api(app: App, resolved: Resolved, *, until_end: bool, leash: Leash | None = None) -> ApiServer | None:
    """Of several processes each takes part in the public socket, which the first of them holds, and has another one
    for itself, where the others find it."""
    if not has_api(resolved, until_end=until_end):
        return None
    from tidegate_api.server import ApiServer, listen_privately

    if leash is None or leash.public is None:
        return ApiServer(app, resolved.settings, open_socket(resolved))
    private = listen_privately(resolved.settings, leash.number)
    return ApiServer(app, resolved.settings, leash.public, private)
