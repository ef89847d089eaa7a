"""Fault points: named points in the engine at which a test can make a process fail.

A point does nothing unless it is armed through the environment of the process:

    TIDEGATE_FAULTS="commit.appended:kill@3"          SIGKILL itself the third time it gets there
    TIDEGATE_FAULTS="commit.frozen:raise@1,handler:delay=0.5"

Actions: `kill` (SIGKILL), `stop` (SIGSTOP), `raise` (InjectedFault), `delay=SECONDS`. `@N`: only at the N-th visit;
without it, at every visit. With TIDEGATE_FAULTS_LOG=FILE a line is written to FILE and synced before a fault is
injected, so that a test can assert that it happened.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from dataclasses import dataclass
from typing import Final

__all__ = ("POINTS", "Fault", "InjectedFault", "arm", "armed", "disarm", "fault_point", "parse", "record")

POINTS: Final = {
    "input.read": "records were read, none is handled yet",
    "handler.before": "a record is about to be handled",
    "handler.after": "a record was handled, its effects are not committed",
    "timer.fired": "a timer's handler ran, its effects are not committed",
    "commit.frozen": "the contents of a commit are fixed, nothing is written yet",
    "commit.appending": "a transaction is about to be passed to the log",
    "log.written": "the embedded log wrote a transaction, but has not synced it",
    "transaction.sent": "the brokers have all records of a transaction, its end was not requested",
    "transaction.ending": "the end of a transaction was requested, the response is not known",
    "transaction.ended": "a transaction has ended, only its writer knows",
    "commit.appended": "the log has the transaction, the local store does not",
    "commit.applied": "the local store has the transaction, the commit is still marked as in progress",
    "store.flush": "the local store is about to flush its write buffers to disk",
    "task.opening": "a task is about to be opened, its previous owner is not fenced yet",
    "recovery.started": "a task is opening, nothing was replayed yet",
    "recovery.replaying": "a task has replayed a part of its changelog",
    "recovery.marker": "a task has replayed its changelog, its first marker is not written",
    "state.migrating": "the log has a batch of migrated state, the local store does not",
    "restore.loading": "a restore has loaded a part of the state, the old run is still current",
    "restore.loaded": "a restore has loaded all state, the old run is still current",
    "restore.begun": "the new run is current, the writers of the old run are not fenced yet",
    "restore.fenced": "the new run is current, and the writers of the old run are fenced",
    "task.reopening": "a task has failed and was closed, and is about to be reopened",
    "task.closing": "a task was revoked or is to stop, its finished work is not committed",
    "group.rebalancing": "the group is rebalancing, the new assignment is not known yet",
    "group.assigned": "the group has assigned tasks, none is opened or closed for it yet",
    "snapshot.held": "a task has entered an epoch, its snapshot is not written yet",
    "snapshot.writing": "a task's store is about to be flushed and linked",
    "snapshot.written": "a task's snapshot is on the local disk",
    "snapshot.uploading": "a file of a snapshot is about to be uploaded",
    "snapshot.uploaded": "all files of a snapshot are uploaded, its description is not written yet",
    "snapshot.reporting": "a task is about to report its snapshot",
    "leader.starting": "a worker becomes the leader, the previous leader is not fenced yet",
    "leader.started": "a worker is the leader, and has completed or aborted its predecessor's checkpoint",
    "leader.beginning": "a checkpoint is about to begin",
    "leader.begun": "the barrier of a checkpoint is in the log",
    "leader.reported": "all tasks have reported, in-flight records are not copied yet",
    "leader.copied": "in-flight records are copied, the manifest is not written",
    "leader.completing": "the leader has confirmed its leadership, the manifest is not written",
    "leader.completed": "the manifest is written, the log does not record the completion yet",
    "leader.deciding": "the outcome of a checkpoint is about to be written to the log",
    "leader.trimming": "the leader knows what all tasks have read of internal topics, nothing of it is deleted",
    "recovery.fetching": "a task is about to look up a checkpoint to start from",
    "recovery.fetched": "a task has a checkpoint as its store, the rest of its changelog is not replayed",
    "log.cleaning": "the embedded log is about to compact a changelog",
    "log.cleaned": "the embedded log has compacted a changelog",
    "table.owned": "a query has claimed its Spark table, nothing of the batch is written",
    "table.staged": "the rows of a batch are staged, the commit plan is not written",
    "table.planned": "a batch is committed by its plan, none of its files is moved into place",
    "table.moved": "a file of a batch is moved into place, others may not be",
    "table.finished": "all files of a batch are in place, leftovers are not removed",
    "table.committed": "a batch is committed to its table, Spark does not know it",
    "table.appended": "a batch is committed to its Delta table, Spark does not know it",
    "topic.sent": "the records of a batch are in their topic, Spark does not know it",
}


class InjectedFault(Exception):
    """Raised by a fault point that is armed with `raise`."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    point: str
    action: str
    nth: int | None = None
    seconds: float = 0.0


armed: bool = False
"""Whether any fault is armed: the hot loop checks this before it calls `fault_point`."""

_faults: dict[str, Fault] = {}
_visits: Counter[str] = Counter()


def parse(text: str) -> list[Fault]:
    """Parse the value of TIDEGATE_FAULTS."""
    faults = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        point, _, rest = part.partition(":")
        rest, _, nth = rest.partition("@")
        action, _, seconds = rest.partition("=")
        if point not in POINTS or action not in ("kill", "stop", "raise", "delay"):
            raise ValueError(
                f"unknown fault {part!r}; points: {', '.join(POINTS)}; actions: kill, stop, raise, delay=S"
            )
        faults.append(Fault(point=point, action=action, nth=int(nth) if nth else None, seconds=float(seconds or 0)))
    return faults


def arm(faults: list[Fault]) -> None:
    """Inject these faults in this process, each at its point; see `parse`."""
    global armed
    _faults.update({fault.point: fault for fault in faults})
    armed = bool(_faults)


def disarm() -> None:
    """Disarm all faults, and reset the visit counts."""
    global armed
    _faults.clear()
    _visits.clear()
    armed = False


def fault_point(name: str) -> None:
    """Inject the fault that is armed at this point, if any."""
    fault = _faults.get(name)
    if fault is None:
        return
    _visits[name] += 1
    if fault.nth is not None and _visits[name] != fault.nth:
        return
    record(f"{fault.point}:{fault.action}@{_visits[fault.point]}")
    if fault.action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault.action == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif fault.action == "delay":
        time.sleep(fault.seconds)
    else:
        raise InjectedFault(name)


def record(what: str) -> None:
    """Append a line to TIDEGATE_FAULTS_LOG, if it is set, and sync it before the process may be killed."""
    path = os.environ.get("TIDEGATE_FAULTS_LOG")
    if not path:
        return
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(descriptor, f"{what}\n".encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


arm(parse(os.environ.get("TIDEGATE_FAULTS", "")))
