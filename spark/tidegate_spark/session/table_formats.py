"""Table formats besides Parquet: their pinned jars, and the session's settings for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidegate_spark.errors import JobDefinitionError

__all__ = ("DELTA", "FORMATS", "PARQUET", "Format", "format_settings", "formats_in", "formats_of")

PARQUET: Final = "parquet"
DELTA: Final = "delta"


@dataclass(frozen=True, kw_only=True)
class Format:
    name: str
    version: str
    """The version of the jars in its lock file."""
    extension: str
    """The class of its Spark extension, by which the presence of its jars is checked."""
    settings: Mapping[str, str]
    hint: str
    """A file or directory in a table by which the format is recognised."""

    @property
    def lock(self) -> str:
        return f"{self.name}.lock"


FORMATS: Final = {
    DELTA: Format(
        name=DELTA,
        version="4.4.0",
        extension="io.delta.sql.DeltaSparkSessionExtension",
        settings={
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.databricks.delta.snapshotPartitions": "2",  # the default of 50 is for tables with millions of files
        },
        hint="_delta_log",
    )
}
_NOT_YET: Final = {"iceberg": "Iceberg has no release for Spark 4.2, and that for 4.1 (1.12.0) does not work with it"}


def formats_of(names: Iterable[str]) -> list[Format]:
    """The formats of these names, without Parquet and duplicates."""
    wanted = sorted({name for name in names if name != PARQUET})
    for name in wanted:
        if name not in FORMATS:
            why = _NOT_YET.get(name, f"there is no format {name!r} for tables")
            raise JobDefinitionError(f"{why}; known: {', '.join((PARQUET, *FORMATS))}")
    return [FORMATS[name] for name in wanted]


def formats_in(directory: str) -> list[str]:
    """The formats of the tables in a local directory; those of a remote one must be given."""
    return [made.name for made in FORMATS.values() if any(Path(directory).glob(f"*/{made.hint}"))]


def format_settings(formats: Iterable[Format]) -> dict[str, str]:
    """The settings that a session needs for these formats."""
    chosen = list(formats)
    settings = {name: value for made in chosen for name, value in made.settings.items()}
    if chosen:
        settings["spark.sql.extensions"] = ",".join(made.extension for made in chosen)
    return settings
