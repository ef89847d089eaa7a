"""`tidegate services`: the services that the code declares, and the progress of their tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, get_args

from tidegate.client.log_access import LogAccess
from tidegate.engine.topology.plan import Plan
from tidegate.functions.definition import ServiceDefinition
from tidegate.functions.policies import Retry
from tidegate.host.app_definition import AppDefinition
from tidegate.owner_rpc.protocol import ServiceStatus, TaskStatus
from tidegate.state.declaration import StateDeclaration
from tidegate.time.clock import MAX_TIME, MIN_TIME
from tidegate_app.formatting import span, type_name

__all__ = ("event_time", "list_services")

ANY_TIMER: Final = "(any)"


async def list_services(definition: AppDefinition, flags: Mapping[str, Any]) -> tuple[list[dict[str, Any]], list[str]]:
    """All declared services with their progress, and the workers that run them."""
    report = await LogAccess(definition, flags).report()
    status = {service.name: service for service in report.services}
    rows = [_service_row(report.plan, service, status.get(service.name)) for service in report.plan.services.values()]
    return rows, report.workers


def _service_row(plan: Plan, service: ServiceDefinition, status: ServiceStatus | None) -> dict[str, Any]:
    return {
        "name": service.name,
        "inputs": [topic.name for topic in service.topics],
        "outputs": [topic.name for topic in service.outputs.values()],
        "states": {name: _state_name(state) for name, state in service.states.items()},
        "tasks": service.tasks,
        "errors": _policy_name(service),
        "timers": _timer_names(service),
        "guarantee": service.execution.guarantee,
        "rekeys_for": service.part_of,
        "lag": None if status is None else sum(task.lag for task in status.tasks),
        "waiting": None if status is None else sum(task.waiting for task in status.tasks),
        "watermark": None if status is None else _watermark(task.watermark for task in status.tasks),
        "progress": [] if status is None else [_task_row(task) for task in status.tasks],
    }


def _task_row(task: TaskStatus) -> dict[str, Any]:
    return {
        "task": task.number,
        "state": task.state,
        "lag": task.lag,
        "waiting": task.waiting,
        "watermark": _watermark([task.watermark]),
        "worker": task.worker,
    }


def _watermark(watermarks: Iterable[int]) -> int | None:
    """The lowest watermark; None: one of them is not known."""
    least = min(watermarks, default=MIN_TIME)
    return least if least > MIN_TIME else None


def event_time(watermark: int | None) -> str:
    """A watermark as text."""
    if watermark is None:
        return ""
    if watermark >= MAX_TIME:
        return "ended"
    try:
        return datetime.fromtimestamp(watermark / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError):  # outside of the range of datetime
        return str(watermark)


def _timer_names(service: ServiceDefinition) -> list[str]:
    return [ANY_TIMER if name is None else name for name in service.timers]


def _policy_name(service: ServiceDefinition) -> str:
    policy = service.errors
    if isinstance(policy, Retry):
        return f"retry {policy.times} times, then {_plain_policy(policy.then)}"
    return _plain_policy(policy)


def _plain_policy(policy: object) -> str:
    return {"Stop": "stop", "Skip": "skip", "DeadLetter": "dead letter"}.get(type(policy).__name__, repr(policy))


def _state_name(state: StateDeclaration) -> str:
    inner = type_name(get_args(state.codec.type)[0] if state.kind == "operator" else state.codec.type)
    if state.kind == "map":
        inner = f"{type_name(state.key_type)}, {inner}"
    ttl = "" if state.ttl is None else f", kept {span(state.ttl.ms)}"
    return f"{state.kind}[{inner}]{ttl}"
