"""The leader's state, folded from the control topic: a new leader that has read the topic knows what its predecessor
knew."""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.checkpoints.control_messages import ANSWERS, REPORTS, REQUESTS, Report, Request
from tidegate.engine.formats.barrier import CHECKPOINT_KEY, OPENED, CheckpointRecord, Opened, decode_checkpoint
from tidegate.logs.base import LogRecord

__all__ = ("Ledger",)


class Ledger:
    def __init__(self, run: str) -> None:
        self._run = run
        self.latest: CheckpointRecord | None = None
        self.reports: dict[str, Report] = {}
        """By task, for the checkpoint under way."""
        self.failure = ""
        """Why the checkpoint under way cannot complete; empty: it still can."""
        self.requests: dict[str, Request] = {}
        """Requests without an answer, oldest first."""

    @property
    def under_way(self) -> CheckpointRecord | None:
        return self.latest if self.latest is not None and self.latest.state == "begun" else None

    def missing(self, tasks: Iterable[str]) -> list[str]:
        """The tasks that have not reported."""
        return [task for task in tasks if task not in self.reports]

    def add(self, record: LogRecord) -> None:
        key, value = record.key or b"", record.value
        if key == CHECKPOINT_KEY and value is not None:
            self._checkpoint(decode_checkpoint(value))
        elif (task := REPORTS.name(key)) is not None and value is not None:
            self._report(task, REPORTS.decode(value))
        elif (task := OPENED.name(key)) is not None and value is not None:
            self._opened(task, OPENED.decode(value))
        elif (id_ := REQUESTS.name(key)) is not None:
            self._request(id_, value)
        elif (id_ := ANSWERS.name(key)) is not None:
            self.requests.pop(id_, None)

    def _checkpoint(self, record: CheckpointRecord) -> None:
        self.latest, self.failure = record, ""
        self.reports.clear()

    def _report(self, task: str, report: Report) -> None:
        if not self._concerns(report.run, report.epoch):
            return
        if report.error:
            self.failure = self.failure or f"{task}: {report.error}"
        else:
            self.reports[task] = report

    def _opened(self, task: str, opened: Opened) -> None:
        """A task that opens in the epoch has lost the store that it held for the snapshot: it can never report."""
        if self._concerns(opened.run, opened.epoch) and task not in self.reports:
            self.failure = self.failure or f"{task} was opened again before its snapshot was uploaded"

    def _concerns(self, run: str, epoch: int) -> bool:
        current = self.under_way
        return current is not None and run == current.run == self._run and epoch == current.epoch

    def _request(self, id_: str, value: bytes | None) -> None:
        if value is None:
            self.requests.pop(id_, None)
        else:
            self.requests[id_] = REQUESTS.decode(value)
