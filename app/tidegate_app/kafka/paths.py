"""Where a broker's things are kept, and what the environment says about them."""

from __future__ import annotations

import os
from pathlib import Path

from tidegate.jvm.paths import user_directory

__all__ = ("data_directory", "test_broker")


def data_directory() -> Path:
    """Of the broker that `tidegate kafka` runs: one per user, whatever directory the command is used in."""
    return user_directory("XDG_DATA_HOME", ".local/share") / "tidegate" / "kafka"


def test_broker() -> str | None:
    """The broker that tests use instead of one of their own."""
    return os.environ.get("TIDEGATE_TEST_BROKER") or None
