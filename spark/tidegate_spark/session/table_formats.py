"""What Spark needs for tables in other formats than Parquet: their jars, pinned, and settings of the session."""

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
    """Of the jars in its lock file."""
    extension: str
    """The class by which Spark learns of it; that it can be loaded says that the jars are there."""
    settings: Mapping[str, str]
    hint: str
    """What a table's directory holds by which the format is known."""

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
            "spark.databricks.delta.snapshotPartitions": "2",  # 50 is for tables with millions of files
        },
        hint="_delta_log",
    )
}
_NOT_YET: Final = {"iceberg": "Iceberg has no release for Spark 4.2, and that for 4.1 (1.12.0) does not work with it"}


def formats_of(names: Iterable[str]) -> list[Format]:
    """Those besides Parquet, each once."""
    wanted = sorted({name for name in names if name != PARQUET})
    for name in wanted:
        if name not in FORMATS:
            why = _NOT_YET.get(name, f"there is no format {name!r} for tables")
            raise JobDefinitionError(f"{why}; known: {', '.join((PARQUET, *FORMATS))}")
    return [FORMATS[name] for name in wanted]


def formats_in(directory: str) -> list[str]:
    """Of the tables in a directory of this machine; of those elsewhere one has to say."""
    return [made.name for made in FORMATS.values() if any(Path(directory).glob(f"*/{made.hint}"))]


def format_settings(formats: Iterable[Format]) -> dict[str, str]:
    """What a session must be made with."""
    chosen = list(formats)
    settings = {name: value for made in chosen for name, value in made.settings.items()}
    if chosen:
        settings["spark.sql.extensions"] = ",".join(made.extension for made in chosen)
    return settings
