"""The jars that Spark needs to read Kafka: matched to the installed Spark, fetched once and kept per user."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from typing import Final

from tidegate.jvm.jars import JarSet, parse_lock
from tidegate_spark.errors import ConnectorError

__all__ = ("TESTED", "connector_jars")

TESTED: Final = "4.2.0"
"""The release of Spark that jars.lock is for."""


def connector_jars(installed: str) -> Sequence[str]:
    """The paths of the connector's jars for this release of Spark."""
    if installed != TESTED:
        raise ConnectorError(installed, [TESTED])
    text = resources.files("tidegate_spark").joinpath("jars.lock").read_text(encoding="utf-8")
    instead = "Or name jars that you have: --jars A.jar,B.jar."
    pinned = JarSet(program="Spark Kafka connector", version=TESTED, jars=parse_lock(text), instead=instead)
    directory = pinned.ensure()
    return [str(directory / jar.file_name) for jar in pinned.jars]
