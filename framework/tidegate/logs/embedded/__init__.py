"""A durable partitioned log on RocksDB, in one process: no broker, no Java, and it survives kill -9."""

from __future__ import annotations

from tidegate.logs.embedded.log import EmbeddedLog
from tidegate.logs.embedded.observer import LogObserver
from tidegate.logs.embedded.options import EmbeddedOptions

__all__ = ("EmbeddedLog", "EmbeddedOptions", "LogObserver")
