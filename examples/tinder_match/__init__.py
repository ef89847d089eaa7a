"""People like each other; the second of two opposite likes is a match. See `app.py`.

`make run` shows it live; `tidegate worker examples.tinder_match:app` runs it as a service.
"""

from __future__ import annotations

from examples.tinder_match.app import app

__all__ = ("app",)
