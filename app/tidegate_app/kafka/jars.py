"""Kafka's jars: their pinned versions and their directory."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Final

from tidegate.jvm.jar_download import Source
from tidegate.jvm.jars import Jar, JarSet, parse_lock

__all__ = ("KAFKA_VERSION", "ensure_jars", "jars_directory", "kafka_jars", "pinned_jars")

KAFKA_VERSION: Final = "4.2.1"
"""Not 4.3.0 or 4.3.1: they treat a partition without a leader as deleted, and skip the transaction markers for it
(KAFKA-20734). On a single broker, partitions have no leader during each restart; a part of a transaction then stays
open, and later appears committed."""


def pinned_jars() -> tuple[Jar, ...]:
    """The jars of jars.lock."""
    return parse_lock(resources.files("tidegate_app.kafka").joinpath("jars.lock").read_text(encoding="utf-8"))


def kafka_jars() -> JarSet:
    instead = "Or use a running broker: kafka://HOST:PORT."
    return JarSet(program="Kafka", version=KAFKA_VERSION, jars=pinned_jars(), instead=instead)


def jars_directory(cache: Path | None = None) -> Path:
    """The directory for downloaded jars."""
    return kafka_jars().directory(cache)


def ensure_jars(cache: Path | None = None, source: Source | None = None) -> Path:
    """The directory with the jars; missing or damaged ones are downloaded."""
    return kafka_jars().ensure(cache, source)
