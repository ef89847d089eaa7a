"""Finds records that were sent in a later epoch than that of the receiving task, which must enter that epoch first.

Nearly all records have a stamp that was seen before: one look-up in a set detects that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from tidegate.engine.processing.context import STAMP_HEADER
from tidegate.logs.base import Headers, LogRecord
from tidegate.logs.records import read_headers

__all__ = ("EpochScan", "epoch_of")

_DIGITS: Final = 19
"""More digits than any epoch has."""


def epoch_of(headers: Headers, prefix: bytes) -> int | None:
    """The epoch in which a record was sent. None: the record is not from this app and run. Other producers may write a
    header that resembles a stamp."""
    for name, value in headers:
        if name == STAMP_HEADER:
            stamp = bytes(value or b"")
            epoch = stamp.rpartition(b"|")[2]
            return int(epoch) if stamp.startswith(prefix) and epoch.isdigit() and len(epoch) < _DIGITS else None
    return None


class EpochScan:
    def __init__(self, app: str, run: str) -> None:
        self.prefix = f"{app}|{run}|".encode()
        self._seen = 0
        """The latest epoch of all records so far."""
        self._known: set[bytes] = set()
        """Stamps of epochs that are not later than that."""

    def split(self, records: Sequence[LogRecord]) -> Iterator[tuple[int, int, int]]:
        """Split records where a later epoch begins. Yields the epoch (0: none), the start index and the end index."""
        start, epoch, headers = 0, 0, read_headers(records)
        while (found := self._next(headers, start)) is not None:
            at, later = found
            if at > start or epoch:
                yield epoch, start, at
            start, epoch = at, later
        yield epoch, start, len(records)

    def sent_in(self, record: LogRecord) -> int:
        """The epoch of a record of this app and run, else 0."""
        return epoch_of(record.headers, self.prefix) or 0

    def _next(self, each: Sequence[Headers], start: int) -> tuple[int, int] | None:
        known = self._known
        for at in range(start, len(each)):
            headers = each[at]
            if headers and headers[-1][1] not in known:
                epoch = self._look(headers)
                if epoch is not None:
                    return at, epoch
        return None

    def _look(self, headers: Headers) -> int | None:
        """The epoch, if it is later than that of all records before."""
        epoch = epoch_of(headers, self.prefix)
        if epoch is not None and epoch > self._seen:
            self._seen = epoch
            self._known.clear()
        else:
            epoch = None
        if headers[-1][0] == STAMP_HEADER and len(self._known) < 10_000:
            self._known.add(bytes(headers[-1][1] or b""))
        return epoch
