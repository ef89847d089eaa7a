"""`faust -A module`: Faust's command line finds the Faust app of a tidegate.App.

Its loader looks for an object called `app` in the module and goes on with that, whatever it is. So what it goes on with
is replaced, at the one function that every found app passes."""

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
