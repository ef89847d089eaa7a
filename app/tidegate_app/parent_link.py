"""What ties a process to the one that started it: a socket that ends with either, and carries the last words."""

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

__all__ = ("Leash",)

_MOST: Final = 32 << 10
"""Bytes of last words: they must fit into the socket while nobody reads it."""


class Leash:
    """The end that the started process holds. Signals are sent; this works also when the other process is killed."""

    def __init__(self, number: int, descriptor: int, public: int | None = None) -> None:
        self.number = number
        """Which of several processes this is."""
        self.public = None if public is None else _inherited(public)
        """The socket of the API that all of them share."""
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
        """Call this when the process that started us has ended."""
        loop = asyncio.get_running_loop()

        def ended() -> None:
            loop.remove_reader(self._socket)
            orphaned()

        loop.add_reader(self._socket, ended)

    def report(self, error: BaseException) -> None:
        """Say why this process ends."""
        if is_debugging():
            traceback.print_exception(error, file=sys.stderr)
        with contextlib.suppress(OSError):  # there is nobody to tell
            self._socket.sendall(describe(error).encode(errors="replace")[:_MOST])


def _inherited(descriptor: int) -> socket.socket:
    os.set_inheritable(descriptor, False)
    return socket.socket(fileno=descriptor)
