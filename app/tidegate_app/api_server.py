"""The HTTP API of a worker process: whether it is enabled, and its sockets."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from tidegate.settings import Settings
from tidegate.settings_resolution import Resolved
from tidegate_app.parent_link import ParentLink

if TYPE_CHECKING:
    from tidegate.app import App
    from tidegate_api.server import ApiServer

__all__ = ("has_api", "open_api", "open_socket", "public_url")


def has_api(resolved: Resolved, *, until_end: bool) -> bool:
    """A bounded run has an API only if the setting is given explicitly."""
    if resolved.settings.api in ("", "off"):
        return False
    return not until_end or resolved.sources["api"] != "default"


def open_socket(resolved: Resolved) -> socket.socket:
    """The public socket."""
    from tidegate_api.server import listen

    return listen(resolved.settings, explicit=resolved.sources["api"] != "default")


def public_url(settings: Settings, public: socket.socket) -> str:
    from tidegate_api.addresses import split, url_of

    return url_of(public, split(settings.api)[0], advertise="", tls=bool(settings.api_tls_cert))


def open_api(
    app: App, resolved: Resolved, *, until_end: bool, parent_link: ParentLink | None = None
) -> ApiServer | None:
    """With several processes, each accepts clients on the shared public socket of their parent, and listens on a
    private one for the other workers."""
    if not has_api(resolved, until_end=until_end):
        return None
    from tidegate_api.server import ApiServer, listen_privately

    if parent_link is None or parent_link.public is None:
        return ApiServer(app, resolved.settings, open_socket(resolved))
    private = listen_privately(resolved.settings, parent_link.number)
    return ApiServer(app, resolved.settings, parent_link.public, private)
