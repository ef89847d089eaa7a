"""What is said about checkpoints on the control topic, besides the leader's record (`engine.barriers`).

tidegate/report/TASK     a task's snapshot of an epoch is in the storage, or cannot be
tidegate/request/ID      somebody asks for a checkpoint or savepoint; removed when it is answered and heard
tidegate/answer/ID       what became of it
"""

from __future__ import annotations

from typing import Final

import msgspec

from tidegate.engine.formats.control_record import ControlRecords

__all__ = ("ANSWERS", "REPORTS", "REQUESTS", "Answer", "Report", "Request")


class Report(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    run: str
    epoch: int
    path: str = ""
    """Where the task has described its snapshot, within the app's storage."""
    uploaded: int = 0
    error: str = ""
    """Why there is none."""


class Request(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str | None = None
    """Of a savepoint; None: a checkpoint."""
    stop: bool = False
    """The app is to stop with it."""
    asked_ms: int = 0
    until_ms: int = 0
    """How long somebody waits for the answer; 0: nobody knows."""

    def over(self, now: int) -> bool:
        """Whoever asked has ended without taking it back: a worker that starts tomorrow must not stop for it."""
        return 0 < self.until_ms < now


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    epoch: int = 0
    error: str = ""
    """Why there is no checkpoint; empty: there is."""


REPORTS: Final = ControlRecords(b"tidegate/report/", Report)
REQUESTS: Final = ControlRecords(b"tidegate/request/", Request)
ANSWERS: Final = ControlRecords(b"tidegate/answer/", Answer)
