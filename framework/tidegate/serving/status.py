"""The status of a worker and its tasks: state, lag, event time and counters."""

from __future__ import annotations

import os
import time
from typing import Any, Final

import msgspec

from tidegate.engine.topology.shuffle import changelog_topic
from tidegate.engine.worker.engine import Engine
from tidegate.host.host import Host
from tidegate.logs.membership import process_name
from tidegate.time.clock import MAX_TIME, MIN_TIME

__all__ = ("TaskSummary", "WorkerSummary", "worker_state")

_COUNTERS: Final = {
    "tidegate_handled_total": "handled",
    "tidegate_emitted_total": "emitted",
    "tidegate_commits_total": "commits",
    "tidegate_commit_seconds_sum": "commit_seconds",
    "tidegate_state_changes_total": "changes",
    "tidegate_retries_total": "retries",
    "tidegate_skipped_total": "skipped",
    "tidegate_dead_letters_total": "dead_letters",
    "tidegate_expired_total": "expired",
    "tidegate_lost_total": "lost",
    "tidegate_lag": "lag",
    "tidegate_waiting_handlers": "waiting",
    "tidegate_stalled": "stalled",
}
_started: Final = time.time()


class TaskSummary(msgspec.Struct, kw_only=True):
    """A task that runs or is being restored in this worker. Counters start with the worker."""

    service: str
    task: int
    state: str
    """`running`, or `restoring`."""
    watermark: int | None = None
    """Event time, in ms; null: not known yet."""
    ended: bool = False
    """A bounded run has reached the end of event time."""
    lag: int = 0
    """Input offsets that are not handled yet; updated every few seconds."""
    waiting: int = 0
    """Handlers that are suspended."""
    stalled: int = 0
    handled: int = 0
    emitted: int = 0
    commits: int = 0
    commit_seconds: float = 0.0
    changes: int = 0
    retries: int = 0
    skipped: int = 0
    dead_letters: int = 0
    expired: int = 0
    lost: int = 0


class WorkerSummary(msgspec.Struct, kw_only=True):
    name: str
    address: str
    ready: bool
    """Its tasks are open and its group membership is confirmed."""
    pid: int
    started: float
    """Seconds since 1970."""
    now: float
    memory: int | None = None
    """Resident bytes."""
    error: str = ""
    """Why the worker did not answer; the other fields are then unknown."""
    tasks: list[TaskSummary] = []


def worker_state(host: Host) -> WorkerSummary:
    engine: Engine | None = getattr(host, "engine", None)
    state = WorkerSummary(
        name=process_name(),
        address=host.address,
        ready=host.running and engine is not None and engine.membership.session_valid,
        pid=os.getpid(),
        started=_started,
        now=time.time(),
        memory=_memory(),
    )
    if engine is None:
        return state
    counted = _counted(engine)
    plan = engine.plan
    names = {changelog_topic(plan.app, plan.run, service): service for service in plan.services}
    for changelog in sorted(engine.membership.owned):
        if changelog.topic in names:  # the control topic is assigned, too, but is not a task
            state.tasks.append(_task(engine, names[changelog.topic], changelog.partition, counted))
    return state


def _task(engine: Engine, service: str, number: int, counted: dict[tuple[str, str], dict[str, Any]]) -> TaskSummary:
    running = engine.tasks.get(f"{service}.{number}")
    counters = counted.get((service, str(number)), {})
    watermark = MIN_TIME if running is None else running.time.watermark
    return TaskSummary(
        service=service,
        task=number,
        state="restoring" if running is None else running.state.value,
        watermark=watermark if MIN_TIME < watermark < MAX_TIME else None,
        ended=watermark >= MAX_TIME,
        **counters,
    )


def _counted(engine: Engine) -> dict[tuple[str, str], dict[str, Any]]:
    """The task counters among the metrics, by service and task."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for family in engine.metrics.registry.collect():
        for sample in family.samples:
            name = _COUNTERS.get(sample.name)
            if name is not None:
                value = sample.value if name == "commit_seconds" else int(sample.value)
                found.setdefault((sample.labels["service"], sample.labels["task"]), {})[name] = value
    return found


def _memory() -> int | None:
    try:
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None
