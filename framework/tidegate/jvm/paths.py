"""Where Java and jars are, and what the environment says about it."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ("cache_directory", "java_home", "repository", "user_directory")


def cache_directory(name: str) -> Path:
    """For what can be fetched again: per user, as the XDG specification says."""
    return user_directory("XDG_CACHE_HOME", ".cache") / "tidegate" / name


def java_home() -> Path | None:
    named = os.environ.get("JAVA_HOME", "")
    return Path(named) if named else None


def repository() -> str | None:
    """A mirror of Maven Central, by the variable that Spark knows. Maven has settings of its own for that."""
    return os.environ.get("DEFAULT_ARTIFACT_REPOSITORY") or None


def user_directory(variable: str, usual: str) -> Path:
    named = os.environ.get(variable, "")
    # The specification says to ignore what is not absolute.
    return Path(named) if os.path.isabs(named) else Path.home() / usual
