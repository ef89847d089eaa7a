"""The worker that `faust worker` starts."""

from __future__ import annotations

from typing import Any

import faust

__all__ = ("Worker",)


class Worker(faust.Worker):
    def __init__(self, app: Any, *services: Any, **options: Any) -> None:
        """Before its banner is shown: with our broker, and without a web server that does not start."""
        app.connect_faust()
        app.conf.web_enabled = app.boot_strategy.enable_web
        super().__init__(app, *services, **options)
