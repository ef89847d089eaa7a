"""What all tests can use."""

from __future__ import annotations

from typing import Any

import pytest

pytest_plugins = ("tidegate_app.kafka.plugin",)

_TOGETHER = "tests/spark/"
"""Tests that share a Spark session, and so a process."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """By file, as --dist loadfile does, but for those that share a session."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return _TOGETHER if nodeid.startswith(_TOGETHER) else str(super()._split_scope(nodeid))

    return Scheduling(config, log) if config.getoption("dist") == "loadfile" else None
