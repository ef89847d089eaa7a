"""The link between a worker's child process and its parent: a socket that closes when either ends, and carries the
child's final error message."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from tidegate_app.error_report import describe, is_debugging

__all__ = ("ParentLink",)

_MAX_MESSAGE_BYTES: Final = 32 << 10
"""The error message must fit into the socket's buffer: the parent reads it after the child has ended."""


class ParentLink:
    """The child's end of the link. Unlike a signal, it also works when the parent is killed."""

    def __init__(self, number: int, descriptor: int, public: int | None = None) -> None:
        self.number = number
        """The number of the child process."""
        self.public = None if public is None else _inherited(public)
        """The API's public socket, which all child processes share."""
        os.set_inheritable(descriptor, False)
        self._socket = socket.socket(fileno=descriptor)

    @classmethod
    def parse(cls, option: str) -> Self:
        """From NUMBER:DESCRIPTOR, or NUMBER:DESCRIPTOR:PUBLIC."""
        return cls(*map(int, option.split(":")))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def watch(self, orphaned: Callable[[], None]) -> None:
        """Call `orphaned` when the parent has ended."""
        loop = asyncio.get_running_loop()

        def ended() -> None:
            loop.remove_reader(self._socket)
            orphaned()

        loop.add_reader(self._socket, ended)

    def report(self, error: BaseException) -> None:
        """Send the error that ends this process to the parent."""
        if is_debugging():
            traceback.print_exception(error, file=sys.stderr)
        with contextlib.suppress(OSError):  # the parent has ended
            self._socket.sendall(describe(error).encode(errors="replace")[:_MAX_MESSAGE_BYTES])


def _inherited(descriptor: int) -> socket.socket:
    os.set_inheritable(descriptor, False)
    return socket.socket(fileno=descriptor)
