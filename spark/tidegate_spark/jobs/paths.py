"""The paths of an app's tables and of its jobs' checkpoints.

TABLES/<table>/date=2024-02-14/*.parquet      the rows: any Parquet reader can read the directory
TABLES/<table>/_tidegate/                     bookkeeping of commits; Parquet readers ignore it
TABLES/_jobs/<job>/<output>/                  the checkpoint of the query that writes an output
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate.interop import data_directory

if TYPE_CHECKING:
    from tidegate import App

__all__ = ("TableLocations",)


class TableLocations:
    def __init__(self, root: str) -> None:
        self.root = root.rstrip("/")

    @classmethod
    def of(cls, app: App, flags: Mapping[str, Any] | None = None) -> TableLocations:
        """By the setting `tables`, else beside the app's data."""
        definition = app.define()
        settings = definition.resolve(flags).settings
        named = settings.tables
        if "://" in named:
            return cls(f"{named.rstrip('/')}/{definition.id}")
        directory = Path(named) / definition.id if named else data_directory(definition.id, settings) / "tables"
        return cls(str(directory.absolute()))

    @property
    def local(self) -> bool:
        return "://" not in self.root

    def table(self, name: str) -> str:
        return f"{self.root}/{name}"

    def checkpoint(self, job: str, output: str) -> str:
        return f"{self.root}/_jobs/{job}/{output}"
