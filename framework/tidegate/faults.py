"""Named points in the engine at which a test can make a process fail.

A point does nothing unless it is armed through the environment, in the process that is to suffer:

    TIDEGATE_FAULTS="commit.appended:kill@3"          SIGKILL itself the third time it gets there
    TIDEGATE_FAULTS="commit.frozen:raise@1,handler:delay=0.5"

Actions: `kill` (SIGKILL), `stop` (SIGSTOP), `raise` (InjectedFault), `delay=SECONDS`. `@N` means only the N-th time;
without it, every time. With TIDEGATE_FAULTS_LOG=FILE a line is written to FILE, and synced, before a fault strikes,
so that a test can assert that it really did.
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
    "handler.after": "a record was handled, nothing of it is committed",
    "timer.fired": "a timer's handler ran, nothing of it is committed",
    "commit.frozen": "a commit's contents are fixed, nothing is written yet",
    "commit.appending": "a transaction is about to be handed to the log",
    "log.written": "the embedded log wrote a transaction, but has not synced it",
    "transaction.sent": "brokers have all records of a transaction, its end was not asked for",
    "transaction.ending": "the end of a transaction was asked for, the answer is not known",
    "transaction.ended": "a transaction has ended, nobody but its writer knows",
    "commit.appended": "the log has the transaction, the local store does not",
    "commit.applied": "the local store has the transaction, memory still counts it as under way",
    "store.flush": "the local store is about to write its memory to disk",
    "task.opening": "a task is about to be opened, its former owner is not fenced yet",
    "recovery.started": "a task is opening, before anything was replayed",
    "recovery.replaying": "a task has replayed a part of its changelog",
    "recovery.marker": "a task has replayed all, its first marker is not written",
    "state.migrating": "the log has a portion of migrated state, the local store does not",
    "restore.loading": "a restore has loaded a part of the state, the old run is still the current one",
    "restore.loaded": "a restore has loaded everything, the old run is still the current one",
    "restore.begun": "the new run is the current one, the old one's writers are not fenced yet",
    "restore.fenced": "the new run is the current one, and the old one's writers are fenced",
    "task.reopening": "a task has failed and was closed, and is about to be opened again",
    "task.closing": "a task was taken away, or is to end, and what it has finished is not committed",
    "group.rebalancing": "the group divides its tasks anew, and nobody knows how yet",
    "group.assigned": "the group has assigned tasks, none is opened or closed for that yet",
    "snapshot.held": "a task has entered an epoch, its snapshot is not written yet",
    "snapshot.writing": "a task's store is about to be flushed and linked",
    "snapshot.written": "a task's snapshot is on the local disk",
    "snapshot.uploading": "a file of a snapshot is about to be uploaded",
    "snapshot.uploaded": "all files of a snapshot are uploaded, it is not described yet",
    "snapshot.reporting": "a task is about to report its snapshot",
    "leader.starting": "a worker is to lead, and has not fenced the leader before it",
    "leader.started": "a worker leads, and has settled what its predecessor had begun",
    "leader.beginning": "a checkpoint is about to begin",
    "leader.begun": "the barrier of a checkpoint is in the log",
    "leader.reported": "all tasks have reported, nothing in flight is copied",
    "leader.copied": "what was in flight is copied, the manifest is not written",
    "leader.completing": "the leader is sure that it leads, the manifest is not written",
    "leader.completed": "the manifest is there, the log does not say so yet",
    "leader.deciding": "what becomes of a checkpoint is about to be written to the log",
    "leader.trimming": "the leader knows what all have read in internal topics, and has deleted nothing of it",
    "recovery.fetching": "a task is about to look for a checkpoint to start from",
    "recovery.fetched": "a task has a checkpoint as its store, its changelog's tail is not replayed",
    "log.cleaning": "the embedded log is about to compact a changelog",
    "log.cleaned": "the embedded log has compacted a changelog",
    "table.owned": "a Spark table knows its query, nothing of the batch is written",
    "table.staged": "a batch's rows are written out of sight, nobody plans to show them",
    "table.planned": "a batch is committed by its plan, no file is in its place",
    "table.moved": "a file of a batch is in its place, others may not be",
    "table.finished": "all files of a batch are in their places, what is left over is not removed",
    "table.committed": "a batch is in its table, Spark does not know it",
    "table.appended": "a batch is in its Delta table, Spark does not know it",
    "topic.sent": "a batch's records are in their topic, Spark does not know it",
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
"""Whether any fault is armed: the hot loop looks at this before it calls `fault_point`."""

_faults: dict[str, Fault] = {}
_visits: Counter[str] = Counter()


def parse(text: str) -> list[Fault]:
    """Read the notation of TIDEGATE_FAULTS."""
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
    """Let these happen in this process, each at its point; see `parse`."""
    global armed
    _faults.update({fault.point: fault for fault in faults})
    armed = bool(_faults)


def disarm() -> None:
    """Let nothing happen any more, and forget which points were passed."""
    global armed
    _faults.clear()
    _visits.clear()
    armed = False


def fault_point(name: str) -> None:
    """Suffer the fault that is armed here, if any."""
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
    """Write a line to TIDEGATE_FAULTS_LOG, if there is one, so that it is there whatever happens next."""
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
