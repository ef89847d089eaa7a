"""Installs peers: in a virtual environment each, since their requirements conflict, or as a Maven build.

The results are kept in the user's cache, under a name derived from their inputs.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

__all__ = ("SetupError", "build", "cache_directory", "environment")

_HERE = Path(__file__).parent
_PATIENCE = 1800


class SetupError(RuntimeError):
    """A peer cannot be installed here; the message is the tool's."""


def cache_directory() -> Path:
    named = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(named) if os.path.isabs(named) else Path.home() / ".cache"
    return base / "tidegate" / "bench"


def environment(peer: str) -> Path:
    """The Python interpreter that has this peer's pinned requirements."""
    requirements = _HERE / "requirements" / f"{peer}.txt"
    directory = cache_directory() / f"{peer}-{_digest([requirements], sys.version)}"
    python = directory / "bin" / "python"
    if not (directory / "done").exists():
        _make_room(peer)
        _run([sys.executable, "-m", "venv", str(directory)])
        _run([*_installer(python), "--require-hashes", "-r", str(requirements)])
        (directory / "done").touch()
    return python


def build(peer: str) -> Path:
    """The directory with peer.jar and libs/ of a peer in Java."""
    source = _HERE / peer
    directory = cache_directory() / f"{peer}-{_digest(sorted(source.rglob('*.*')))}"
    if not (directory / "done").exists():
        if shutil.which("mvn") is None:
            raise SetupError("Maven is needed to build this peer: install it, so that `mvn` is on the PATH")
        _make_room(peer)
        _run(["mvn", "-q", "-B", "-f", str(source / "pom.xml"), "package", f"-Dbench.build={directory}"])
        (directory / "done").touch()
    return directory


def _installer(python: Path) -> list[str]:
    """uv if it is installed, else pip: both check the same hashes."""
    beside = Path(sys.executable).with_name("uv")
    uv = shutil.which("uv") or (str(beside) if beside.exists() else None)
    if uv:
        return [uv, "pip", "install", "--quiet", "--python", str(python)]
    return [str(python), "-m", "pip", "install", "--quiet"]


def _make_room(peer: str) -> None:
    """Delete earlier installations of this peer, complete or not."""
    for former in cache_directory().glob(f"{peer}-*"):
        shutil.rmtree(former, ignore_errors=True)


def _digest(files: list[Path], more: str = "") -> str:
    digest = hashlib.sha256(more.encode())
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        raise SetupError(f"`{' '.join(command)}` took more than {_PATIENCE // 60} minutes") from None
    if done.returncode:
        lines = (done.stdout + done.stderr).strip().splitlines()
        raise SetupError("\n".join([f"`{' '.join(command)}` failed:", *lines[-20:]]))
