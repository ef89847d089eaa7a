"""Records about checkpoints on the control topic, besides the leader's barrier (`engine.formats.barrier`).

tidegate/report/TASK     a task's snapshot of an epoch is uploaded, or has failed
tidegate/request/ID      a client requests a checkpoint or savepoint; the client removes it once it has the answer
tidegate/answer/ID       the outcome of that request
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
    """Path of the task's snapshot description within the app's storage."""
    uploaded: int = 0
    error: str = ""
    """Why the task has no snapshot; empty: it has one."""


class Request(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str | None = None
    """Name of the savepoint; None: a checkpoint is requested."""
    stop: bool = False
    """Stop the app with this checkpoint."""
    asked_ms: int = 0
    until_ms: int = 0
    """When the client stops waiting for the answer; 0: unknown."""

    def expired(self, now: int) -> bool:
        """The client ended without withdrawing its request: a worker that starts tomorrow must not stop for it."""
        return 0 < self.until_ms < now


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    epoch: int = 0
    error: str = ""
    """Why there is no checkpoint; empty: it is complete."""


REPORTS: Final = ControlRecords(b"tidegate/report/", Report)
REQUESTS: Final = ControlRecords(b"tidegate/request/", Request)
ANSWERS: Final = ControlRecords(b"tidegate/answer/", Answer)
