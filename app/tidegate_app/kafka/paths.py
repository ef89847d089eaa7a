"""The default data directory of a broker, and the external broker for tests."""

from __future__ import annotations

import os
from pathlib import Path

from tidegate.jvm.paths import user_directory

__all__ = ("data_directory", "test_broker")


def data_directory() -> Path:
    """The directory of `tidegate kafka`: one per user, independent of the working directory."""
    return user_directory("XDG_DATA_HOME", ".local/share") / "tidegate" / "kafka"


def test_broker() -> str | None:
    """The external broker that tests use, if one is set."""
    return os.environ.get("TIDEGATE_TEST_BROKER") or None
