#!/usr/bin/env python3
"""Health check of the worker in this container: requests /livez, or the given path, from its API.

It uses the standard library only, and exits with 0 or 1. The address is that of TIDEGATE_API.
"""

from __future__ import annotations

import os
import ssl
import sys
import urllib.error
import urllib.request

SECONDS = 4


def url(path: str) -> str:
    """An API that listens on all interfaces is reached through the loopback."""
    host, _, port = os.environ.get("TIDEGATE_API", "127.0.0.1:8000").rpartition(":")
    scheme = "https" if os.environ.get("TIDEGATE_API_TLS_CERT") else "http"
    return f"{scheme}://{'127.0.0.1' if host in ('', '0.0.0.0', '[::]') else host}:{port}{path}"  # noqa: S104


def healthy(path: str) -> bool:
    unchecked = ssl.create_default_context()
    unchecked.check_hostname, unchecked.verify_mode = False, ssl.CERT_NONE  # its certificate names another host
    try:
        with urllib.request.urlopen(url(path), timeout=SECONDS, context=unchecked) as answer:  # noqa: S310
            return bool(answer.status == 200)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"{url(path)}: {error}\n")
        return False


if __name__ == "__main__":
    sys.exit(0 if healthy(sys.argv[1] if len(sys.argv) > 1 else "/livez") else 1)
