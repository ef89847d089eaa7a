"""The files in a broker's data directory."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ("Layout",)

_LAST_LINES: Final = 20


@dataclass(frozen=True)
class Layout:
    data: Path

    @property
    def lock(self) -> Path:
        """Held by the broker's process until it ends."""
        return self.data / "broker.lock"

    @property
    def pid(self) -> Path:
        """The process id; valid while the lock is held."""
        return self.data / "broker.pid"

    @property
    def guard_pid(self) -> Path:
        return self.data / "guard.pid"

    @property
    def storage(self) -> Path:
        """Kafka's data: topics and metadata."""
        return self.data / "storage"

    @property
    def is_formatted(self) -> bool:
        """Formatting writes this file last."""
        return (self.storage / "meta.properties").exists()

    @property
    def properties(self) -> Path:
        return self.data / "server.properties"

    @property
    def log_configuration(self) -> Path:
        return self.data / "log4j2.xml"

    @property
    def log(self) -> Path:
        return self.data / "broker.log"

    @property
    def output(self) -> Path:
        """The JVM's own output, such as why it cannot start."""
        return self.data / "broker.out"

    def last_lines(self) -> list[str]:
        """The last lines of the JVM's output and of the log."""
        return (_tail(self.output) + _tail(self.log))[-_LAST_LINES:]

    # The port is stored separately, so that server.properties need not be parsed.

    def remember_port(self, port: int) -> None:
        written = self._memory.with_suffix(".new")
        written.write_text(json.dumps({"port": port}), encoding="utf-8")
        written.replace(self._memory)

    def remembered_port(self) -> int | None:
        try:
            return int(json.loads(self._memory.read_text(encoding="utf-8"))["port"])
        except FileNotFoundError:
            return None

    @property
    def _memory(self) -> Path:
        return self.data / "broker.json"


def _tail(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()[-_LAST_LINES:]
    except FileNotFoundError:
        return []
