"""A record, a message or a timer that is handled outside of the hot loop."""

from __future__ import annotations

import asyncio
from typing import Any

from tidegate.engine.processing.input import Input
from tidegate.functions.context import Timer
from tidegate.logs.base import LogRecord

__all__ = ("WorkItem",)


class WorkItem:
    __slots__ = (
        "attempt",
        "deadline",
        "input",
        "key",
        "late",
        "record",
        "sequence",
        "timed_out",
        "timer",
        "timestamp",
        "value",
    )

    def __init__(
        self,
        key: bytes,
        timestamp: int,
        late: bool,
        input_: Input | None = None,
        record: LogRecord | None = None,
        value: Any = None,
        timer: Timer | None = None,
    ) -> None:
        self.key, self.timestamp, self.late = key, timestamp, late
        self.input, self.record, self.value, self.timer = input_, record, value, timer
        self.sequence = 0
        """Its sequence number among the unfinished work items; 0: it is not one of them."""
        self.attempt = 0
        self.deadline: asyncio.TimerHandle | None = None
        self.timed_out = False

    @property
    def where(self) -> str:
        if self.timer is not None:
            return f"timer {self.timer.name!r} of key {self.key!r}"
        if self.input is None or self.record is None:
            return f"key {self.key!r}"
        return f"{self.input.source} offset {self.record.offset}, key {self.record.key!r}"
