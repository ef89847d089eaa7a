"""The address of a log's owner: a Unix socket, and a file in the log's directory that names it."""

from __future__ import annotations

import os
import socket
import stat
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

__all__ = ("Address", "bind", "publish_address", "read_address", "remove_address")

FILE: Final = "control.json"
SOCKET: Final = "control.sock"
MAX_PATH: Final = 100
"""Bytes of a socket's path; some systems allow only 103."""
_PREFIX: Final = "tidegate-"


class Address(Struct):
    """The contents of the file."""

    pid: int
    socket: str
    started: int
    command: str

    def __str__(self) -> str:
        return f"process {self.pid} ({self.command})"


def read_address(directory: Path) -> Address | None:
    """None: there is no address, or the file is unreadable."""
    try:
        return msgspec.json.decode((directory / FILE).read_bytes(), type=Address)
    except (OSError, msgspec.MsgspecError):
        return None


def bind(directory: Path) -> socket.socket:
    """A socket in the directory; if its path is too long, or the file system has no sockets, in a private temporary
    directory."""
    _remove_stale_socket(directory)
    path = directory.absolute() / SOCKET
    if len(os.fsencode(path)) < MAX_PATH:
        try:
            return _bind(path)
        except OSError:
            pass
    private = Path(tempfile.mkdtemp(prefix=_PREFIX))  # 0700
    return _bind(private / SOCKET)


def publish_address(directory: Path, bound: socket.socket) -> Address:
    """Write the file atomically, readable by this user only."""
    address = Address(
        pid=os.getpid(), socket=str(bound.getsockname()), started=int(time.time()), command=" ".join(sys.argv)
    )
    path = directory / FILE
    new = path.with_suffix(".new")
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.json.encode(address))
    new.replace(path)
    return address


def remove_address(directory: Path) -> None:
    """Remove the file and the socket that it names."""
    _remove_stale_socket(directory)
    (directory / FILE).unlink(missing_ok=True)


def _bind(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        bound.bind(str(path))
        path.chmod(0o600)  # before it listens, so no other user can connect
    except OSError:
        bound.close()
        raise
    return bound


def _remove_stale_socket(directory: Path) -> None:
    """Removes the socket of an owner that has ended, for example by a kill. Checks that the path is a socket of
    ours."""
    address = read_address(directory)
    if address is None:
        return
    path = Path(address.socket)
    try:
        if path.name == SOCKET and stat.S_ISSOCK(path.lstat().st_mode):
            path.unlink()
            if path.parent.name.startswith(_PREFIX):
                path.parent.rmdir()
    except OSError:
        return
