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

__all__ = ("POINTS", "Fault", "InjectedFault", "arm", "armed", "disarm", "fault_point", "parse")

POINTS: Final = {
    "input.read": "records were read, none is handled yet",
    "handler.before": "a record is about to be handled",
    "handler.after": "a record was handled, nothing of it is committed",
    "timer.fired": "a timer's handler ran, nothing of it is committed",
    "commit.frozen": "a commit's contents are fixed, nothing is written yet",
    "commit.appending": "a transaction is about to be handed to the log",
    "log.written": "the embedded log wrote a transaction, but has not synced it",
    "commit.appended": "the log has the transaction, the local store does not",
    "commit.applied": "the local store has the transaction, memory still counts it as under way",
    "store.flush": "the local store is about to write its memory to disk",
    "recovery.started": "a task is opening, before anything was replayed",
    "recovery.replaying": "a task has replayed a part of its changelog",
    "recovery.marker": "a task has replayed all, its first marker is not written",
    "log.cleaning": "the embedded log is about to compact a changelog",
    "log.cleaned": "the embedded log has compacted a changelog",
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
    global armed
    _faults.update({fault.point: fault for fault in faults})
    armed = bool(_faults)


def disarm() -> None:
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
    _record(fault)
    if fault.action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault.action == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif fault.action == "delay":
        time.sleep(fault.seconds)
    else:
        raise InjectedFault(name)


def _record(fault: Fault) -> None:
    path = os.environ.get("TIDEGATE_FAULTS_LOG")
    if not path:
        return
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(descriptor, f"{fault.point}:{fault.action}@{_visits[fault.point]}\n".encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


arm(parse(os.environ.get("TIDEGATE_FAULTS", "")))
