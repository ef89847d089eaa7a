"""Kafka's jars: which they are, and where they are kept."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Final

from tidegate.jvm.jar_download import Source
from tidegate.jvm.jars import Jar, JarSet, parse_lock

__all__ = ("KAFKA_VERSION", "ensure_jars", "jars_directory", "kafka_jars", "pinned_jars")

KAFKA_VERSION: Final = "4.2.1"
"""Not 4.3.0 or 4.3.1: they take a partition that has no leader for a moment for one that was deleted, and leave out
the markers that end a transaction there (KAFKA-20734). A lone broker has such moments whenever it stops and starts; a
part of a transaction then stays undecided, and shows later as if it had been committed."""


def pinned_jars() -> tuple[Jar, ...]:
    """Those of jars.lock."""
    return parse_lock(resources.files("tidegate_app.kafka").joinpath("jars.lock").read_text(encoding="utf-8"))


def kafka_jars() -> JarSet:
    instead = "Or use a broker that runs already: kafka://HOST:PORT."
    return JarSet(program="Kafka", version=KAFKA_VERSION, jars=pinned_jars(), instead=instead)


def jars_directory(cache: Path | None = None) -> Path:
    """Where they are, once they have been fetched."""
    return kafka_jars().directory(cache)


def ensure_jars(cache: Path | None = None, source: Source | None = None) -> Path:
    """The directory with the jars, fetched if they are not there or damaged."""
    return kafka_jars().ensure(cache, source)
