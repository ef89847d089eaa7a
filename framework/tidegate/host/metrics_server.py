"""Serves metrics to Prometheus over HTTP, from a thread of its own."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, start_http_server

from tidegate.errors import SettingsError

__all__ = ("serve_metrics",)


def serve_metrics(address: str, registry: CollectorRegistry) -> Callable[[], None]:
    """Serve at HOST:PORT until the returned function is called. Without an address, do nothing."""
    if not address:
        return lambda: None
    host, _, port = address.rpartition(":")
    try:
        server, thread = start_http_server(int(port), host.strip("[]"), registry)
    except OSError as error:
        raise SettingsError(
            f"metrics cannot be served at {address}: {error.strerror or error}. Choose another address (--metrics)."
        ) from error

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return stop
