"""Lines from stdin as they come, read by a thread of their own so that the event loop never waits for them."""

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
"""Chunks that are read ahead."""


class StdinLines:
    """Chunks of whole lines. A chunk is whatever has come: a line that is typed is there at once."""

    def __init__(self, descriptor: int | None = None) -> None:
        self._descriptor = sys.stdin.fileno() if descriptor is None else descriptor
        self._loop = asyncio.get_running_loop()
        self._chunks: asyncio.Queue[bytes | OSError] = asyncio.Queue(AHEAD)
        self.bytes_read = 0

    @property
    def size(self) -> int | None:
        """In bytes, if it is known."""
        status = os.fstat(self._descriptor)
        return status.st_size if stat.S_ISREG(status.st_mode) else None

    @property
    def is_terminal(self) -> bool:
        return os.isatty(self._descriptor)

    async def chunks(self, *, idle: float) -> AsyncIterator[list[bytes]]:
        """Lists of lines; an empty one when nothing has come for `idle` seconds."""
        # A daemon: while it waits for input, nothing can stop it, and the process must be able to end.
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
                return  # the loop is closed: nobody reads any more
