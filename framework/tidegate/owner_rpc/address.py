"""Where the owner of a log can be reached: a socket, and a small file in the log's directory that names it."""

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

__all__ = ("Address", "announce", "bind", "read_address", "withdraw")

FILE: Final = "control.json"
SOCKET: Final = "control.sock"
LONGEST: Final = 100
"""Bytes in a socket's path; some systems allow 103."""
_PREFIX: Final = "tidegate-"


class Address(Struct):
    """What the file says."""

    pid: int
    socket: str
    started: int
    command: str

    def __str__(self) -> str:
        return f"process {self.pid} ({self.command})"


def read_address(directory: Path) -> Address | None:
    """None: nobody has announced an address, or what is there cannot be read."""
    try:
        return msgspec.json.decode((directory / FILE).read_bytes(), type=Address)
    except (OSError, msgspec.MsgspecError):
        return None


def bind(directory: Path) -> socket.socket:
    """A socket in the directory; where its path is too long, or sockets are not possible, in a private one."""
    _remove_left_behind(directory)
    path = directory.absolute() / SOCKET
    if len(os.fsencode(path)) < LONGEST:
        try:
            return _bind(path)
        except OSError:
            pass
    private = Path(tempfile.mkdtemp(prefix=_PREFIX))  # 0700
    return _bind(private / SOCKET)


def announce(directory: Path, bound: socket.socket) -> Address:
    """Write the file, for this user only, and at once."""
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


def withdraw(directory: Path) -> None:
    """Remove the file and the socket that it names."""
    _remove_left_behind(directory)
    (directory / FILE).unlink(missing_ok=True)


def _bind(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        bound.bind(str(path))
        path.chmod(0o600)  # nobody can connect before it listens
    except OSError:
        bound.close()
        raise
    return bound


def _remove_left_behind(directory: Path) -> None:
    """The socket of an owner that is gone, for example one that was killed. Removes nothing that is not ours."""
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
