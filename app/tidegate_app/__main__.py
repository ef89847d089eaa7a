"""python -m tidegate_app: the same as `tidegate`."""

from __future__ import annotations

from tidegate_app.cli import main

main()
