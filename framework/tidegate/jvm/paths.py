"""Paths of Java and jars, and the environment variables that set them."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ("cache_directory", "java_home", "repository", "user_directory")


def cache_directory(name: str) -> Path:
    """The user's cache directory of the XDG specification, for files that can be downloaded again."""
    return user_directory("XDG_CACHE_HOME", ".cache") / "tidegate" / name


def java_home() -> Path | None:
    named = os.environ.get("JAVA_HOME", "")
    return Path(named) if named else None


def repository() -> str | None:
    """A mirror of Maven Central, from the variable that Spark uses. Maven has its own settings for mirrors."""
    return os.environ.get("DEFAULT_ARTIFACT_REPOSITORY") or None


def user_directory(variable: str, usual: str) -> Path:
    named = os.environ.get(variable, "")
    # The specification says to ignore relative paths.
    return Path(named) if os.path.isabs(named) else Path.home() / usual
