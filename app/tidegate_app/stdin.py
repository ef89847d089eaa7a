"""Reads lines from stdin in a thread of its own, so that the event loop does not block."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
import threading
from collections.abc import AsyncIterator
from concurrent.futures import CancelledError
from typing import Final

__all__ = ("StdinLines",)

CHUNK: Final = 256 << 10
AHEAD: Final = 4
"""How many chunks are read ahead."""


class StdinLines:
    """Chunks of whole lines. A chunk holds what has arrived, so that a typed line is available at once."""

    def __init__(self, descriptor: int | None = None) -> None:
        self._descriptor = sys.stdin.fileno() if descriptor is None else descriptor
        self._loop = asyncio.get_running_loop()
        self._chunks: asyncio.Queue[bytes | OSError] = asyncio.Queue(AHEAD)
        self.bytes_read = 0

    @property
    def size(self) -> int | None:
        """The size in bytes, if stdin is a file."""
        status = os.fstat(self._descriptor)
        return status.st_size if stat.S_ISREG(status.st_mode) else None

    @property
    def is_terminal(self) -> bool:
        return os.isatty(self._descriptor)

    async def chunks(self, *, idle: float) -> AsyncIterator[list[bytes]]:
        """Lists of lines; an empty list when nothing has arrived for `idle` seconds."""
        # A daemon thread: a blocked read cannot be interrupted and must not keep the process alive.
        threading.Thread(target=self._pump, name="tidegate-stdin", daemon=True).start()
        rest = b""
        while True:
            try:
                chunk = await asyncio.wait_for(self._chunks.get(), idle)
            except TimeoutError:
                yield []
                continue
            if isinstance(chunk, OSError):
                raise chunk
            if not chunk:
                break
            self.bytes_read += len(chunk)
            *lines, rest = (rest + chunk).split(b"\n")
            if lines:
                yield lines
        if rest:
            yield [rest]

    def _pump(self) -> None:
        chunk: bytes | OSError = b"?"
        while chunk and not isinstance(chunk, OSError):
            try:
                chunk = os.read(self._descriptor, CHUNK)
            except OSError as error:
                chunk = error
            try:
                asyncio.run_coroutine_threadsafe(self._chunks.put(chunk), self._loop).result()
            except (RuntimeError, CancelledError):
                return  # the loop is closed
