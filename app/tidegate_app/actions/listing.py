"""What `tidegate topics` and `tidegate services` show: what the code declares, and what is there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, get_args

from tidegate.client.log_access import Access
from tidegate.engine.topology.plan import Plan, dead_letter_topic
from tidegate.functions.policies import Retry
from tidegate.functions.service import ServiceDefinition
from tidegate.functions.topics import TopicDefinition
from tidegate.host.host import AppDefinition
from tidegate.logs.base import TopicPartition
from tidegate.logs.observer import Observer
from tidegate.owner_rpc.protocol import ServiceStatus, TaskStatus, TopicStatus
from tidegate.state.declaration import StateDeclaration
from tidegate.time.clock import MAX_TIME, MIN_TIME

__all__ = ("event_time", "list_services", "list_topics")

COUNTED: Final = 100_000
"""Up to so many offsets, a topic's records are counted."""
ANY_TIMER: Final = "(any)"


# ------------------------------------------------------------------------------------------------------------ topics


async def list_topics(definition: AppDefinition, flags: Mapping[str, Any], *, internal: bool) -> list[dict[str, Any]]:
    """All topics of the app, and with `internal` those that Tidegate made for itself."""
    access = Access(definition, flags)
    async with access.observed() as observer:
        plan, existing = await access.look(observer)
        there = {topic.name: topic for topic in existing}
        known = plan.topics
        shown = [topic for topic in known.values() if internal or not topic.internal]
        rows = [_topic_row(plan, topic, topic.name in there) for topic in shown]
        if internal:
            rows += [_internal_row(topic) for name, topic in there.items() if name not in known]
        for row in rows:
            if observer is not None and row["created"]:
                row["records"], row["exact"] = await _count(observer, there[row["name"]])
    return rows


async def _count(observer: Observer, topic: TopicStatus) -> tuple[int, bool]:
    """How many records there are. Transactions, compaction and retention leave gaps between offsets, so only a look
    at the records tells; if they are many, the offsets must do: there are at most so many."""
    spans = {TopicPartition(topic.name, number): end for number, end in enumerate(topic.ends)}
    most = sum(topic.ends) - sum(topic.starts)
    if most > COUNTED:
        return most, False
    reader = observer.reader()
    reader.assign({source: topic.starts[source.partition] for source in spans})
    records = 0
    while any(reader.position(source) < end for source, end in spans.items()):
        records += sum(len(batch.records) for batch in await reader.read(timeout=0.5))
    return records, True


def _topic_row(plan: Plan, topic: TopicDefinition, created: bool) -> dict[str, Any]:
    services = plan.services.values()
    letters = {service.name: dead_letter_topic(plan.app, service) for service in services}
    return {
        "name": topic.name,
        "partitions": topic.partitions,
        "records": 0,
        "exact": True,
        "created": created,
        "kept": _kept(topic.compact, topic.retention_ms, topic.retention_bytes),
        "type": _type_name(topic.codec.type),
        "written_by": [
            service.name
            for service in services
            if topic.name in {output.name for output in service.outputs.values()}
            or topic.name == getattr(letters[service.name], "name", None)
        ],
        "read_by": [service.name for service in services if topic.name in {input_.name for input_ in service.inputs}],
        "internal": topic.internal,
    }


def _internal_row(status: TopicStatus) -> dict[str, Any]:
    return {
        "name": status.name,
        "partitions": status.partitions,
        "records": 0,
        "exact": True,
        "created": True,
        "kept": _kept(status.compact, status.retention_ms, status.retention_bytes),
        "type": "",
        "written_by": [],
        "read_by": [],
        "internal": True,
    }


def _kept(compact: bool, retention_ms: int | None, retention_bytes: int | None) -> str:
    if compact:
        return "last of each key"
    limits = []
    if retention_ms is not None:
        limits.append(_span(retention_ms))
    if retention_bytes is not None:
        limits.append(f"{retention_bytes:,} bytes per partition")
    return " or ".join(limits) or "for ever"


def _span(milliseconds: int) -> str:
    for unit, name in ((86_400_000, "days"), (3_600_000, "hours"), (60_000, "minutes"), (1000, "seconds")):
        if milliseconds >= unit:
            return f"{milliseconds / unit:g} {name.removesuffix('s') if milliseconds == unit else name}"
    return f"{milliseconds} ms"


# ---------------------------------------------------------------------------------------------------------- services


async def list_services(definition: AppDefinition, flags: Mapping[str, Any]) -> tuple[list[dict[str, Any]], list[str]]:
    """All services as declared, with how far they have come; and the workers that run them."""
    report = await Access(definition, flags).report()
    status = {service.name: service for service in report.services}
    rows = [_service_row(report.plan, service, status.get(service.name)) for service in report.plan.services.values()]
    return rows, report.workers


def _service_row(plan: Plan, service: ServiceDefinition, status: ServiceStatus | None) -> dict[str, Any]:
    return {
        "name": service.name,
        "inputs": [topic.name for topic in service.inputs],
        "outputs": [topic.name for topic in service.outputs.values()],
        "states": {name: _state_name(state) for name, state in service.states.items()},
        "tasks": service.tasks,
        "errors": _policy_name(service),
        "timers": _timer_names(service),
        "guarantee": service.guarantee,
        "rekeys_for": service.rekeys,
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
    """The least; None: not all are known."""
    least = min(watermarks, default=MIN_TIME)
    return least if least > MIN_TIME else None


def event_time(watermark: int | None) -> str:
    """For people."""
    if watermark is None:
        return ""
    if watermark >= MAX_TIME:
        return "at its end"
    try:
        return datetime.fromtimestamp(watermark / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError):  # time need not be of this era
        return str(watermark)


def _timer_names(service: ServiceDefinition) -> list[str]:
    names = [ANY_TIMER if name is None else name for name in service.timer_handlers]
    return names or ([ANY_TIMER] if service.prototype is not None and service.handles_timer("") else [])


def _policy_name(service: ServiceDefinition) -> str:
    policy = service.errors
    if isinstance(policy, Retry):
        return f"retry {policy.times} times, then {_plain_policy(policy.then)}"
    return _plain_policy(policy)


def _plain_policy(policy: object) -> str:
    return {"Stop": "stop", "Skip": "skip", "DeadLetter": "dead letter"}.get(type(policy).__name__, repr(policy))


def _state_name(state: StateDeclaration) -> str:
    inner = _type_name(get_args(state.codec.type)[0] if state.kind == "operator" else state.codec.type)
    if state.kind == "map":
        inner = f"{_type_name(state.key_type)}, {inner}"
    ttl = "" if state.ttl is None else f", kept {_span(state.ttl.ms)}"
    return f"{state.kind}[{inner}]{ttl}"


def _type_name(type_: Any) -> str:
    if type_ is Any:
        return "any"
    return str(getattr(type_, "__name__", "") if isinstance(type_, type) else "") or repr(type_).replace("typing.", "")
