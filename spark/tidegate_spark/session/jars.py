"""The additional jars of a Spark session: pinned for the installed Spark, downloaded once and cached per user."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import resources
from typing import Final

from tidegate.jvm.jars import JarSet, parse_lock
from tidegate_spark.errors import ConnectorError
from tidegate_spark.session.table_formats import Format

__all__ = ("CONNECTOR", "TESTED", "connector_jars", "needed_jars")

TESTED: Final = "4.2.0"
"""The Spark release of the lock files."""
CONNECTOR: Final = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
"""The class by which the presence of the connector's jars is checked."""
_INSTEAD: Final = "Or give local jars: --jars A.jar,B.jar."


def connector_jars(installed: str) -> list[str]:
    """The paths of the Kafka connector's jars for this release of Spark."""
    if installed != TESTED:
        raise ConnectorError(installed, [TESTED])
    return _fetched("jars.lock", "Spark Kafka connector", TESTED)


def needed_jars(installed: str, *, kafka: bool, formats: Iterable[Format]) -> list[str]:
    """All jars that a session for these needs."""
    found = connector_jars(installed) if kafka else []
    for made in formats:
        if installed != TESTED:
            raise ConnectorError(installed, [TESTED])
        found += _fetched(made.lock, f"Spark {made.name.title()}", made.version)
    return found


def _fetched(lock: str, program: str, version: str) -> list[str]:
    text = resources.files("tidegate_spark").joinpath(lock).read_text(encoding="utf-8")
    pinned = JarSet(program=program, version=version, jars=parse_lock(text), instead=_INSTEAD)
    directory = pinned.ensure()
    return [str(directory / jar.file_name) for jar in pinned.jars]
