"""`faust -A module`: Faust's command line finds the Faust app of a tidegate.App.

Faust's loader uses whatever object is called `app` in the module. Every app that it finds passes one function, which is
replaced here by one that takes the Faust app of a tidegate.App.
"""

from __future__ import annotations

from typing import Any

from faust.cli import base
from faust.types import AppT

__all__ = ("find_hosted_apps",)

_prepare_app = base.prepare_app


def find_hosted_apps() -> None:
    """Install the hook into Faust's command line."""
    base.prepare_app = _prepare_hosted


def _prepare_hosted(app: Any, name: str | None) -> AppT:
    return _prepare_app(app if isinstance(app, AppT) else app.faust, name)
